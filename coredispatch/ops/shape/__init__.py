"""The same elements in another shape or order: views, transposes, slices, joins, padding."""
