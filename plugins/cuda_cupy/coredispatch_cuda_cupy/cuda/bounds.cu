// Floating-point numbers checked for another kernel that uses them.

// Reports what is not in [low, high], of which NaN is, if `nan`, no member either.
extern "C" __global__ void check_numbers(
    const E* x, i64 size, double low, double high, i64 nan, i64* flag, i64 kind, i64 op) {
    Check check{__double_as_longlong(low), flag, kind, op};
    for (Each i(size); i.more(); i.next()) {
        double value = widened(x[i]);
        if (value < low || value > high || (nan && value != value))
            check.report(__double_as_longlong(value), __double_as_longlong(high));
    }
}
