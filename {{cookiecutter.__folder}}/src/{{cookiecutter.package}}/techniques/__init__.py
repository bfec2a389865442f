"""What some projects need: one technique a file. Nothing imports them; delete those you do not use, with their test."""
