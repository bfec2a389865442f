"""The template's room: how good practice is held, one family a file. An update may change these."""
