"""What things are: keys, values, dtypes, devices, schemas, derivative rules, backends, errors."""
