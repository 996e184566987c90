"""Reading and writing by index: subscripts, gather and scatter, rows, masks."""
