"""The template's: how data of a kind is read, split and batched; the task's data module puts it together."""
