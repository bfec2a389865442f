"""Keep projects made from a template on its newest version: one project, or forty."""
