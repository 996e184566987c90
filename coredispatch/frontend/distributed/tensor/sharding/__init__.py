"""With which layouts operators run on the parts of a DTensor."""
