"""What some projects need. Delete what you do not use, with its overlay in configs/ and its test.

The networks of blocks (the files named blocks, deformable, straight_through) go together; no other room imports any.
"""
