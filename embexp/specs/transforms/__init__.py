"""What is done to the rows of a pretrained file before they become rows of a table: a list of steps, in order."""
