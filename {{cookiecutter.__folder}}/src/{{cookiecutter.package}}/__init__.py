"""A Lightning project: what you change is in the task's folder, how it is trained in practices/."""
