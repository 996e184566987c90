#!/bin/sh
# certify.sh COREDISPATCH BACKEND [OPTIONS]: the reports that `make conformance` leaves in
# build/conformance. For the embedded backend: without plugins, then with each plugin installed.
command=$1; backend=$2; shift 2
out=build/conformance
mkdir -p $out
failed=0

certify() { # name, plugins, options
    name=$1; plugins=$2; shift 2
    echo "== $name"
    COREDISPATCH_PLUGINS=$plugins "$command" conformance run --jobs 2 \
        --json $out/$name.json --report $out/$name.html --badge $out/$name.svg "$@" || failed=1
}

if [ "$backend" != cpu ]; then
    certify "$backend" "$backend" --backend "$backend" "$@"
    exit $failed
fi
certify cpu none --backend cpu --level training "$@"
for plugin in cpu_numba flat; do
    key=cpu
    [ $plugin = flat ] && key=flat
    if COREDISPATCH_PLUGINS=$plugin "$command" info | grep -q "^  $plugin .*loaded"; then
        certify $plugin $plugin --backend $key --level training "$@"
    fi
done
for profile in sparse quant; do
    if COREDISPATCH_PLUGINS=$profile "$command" info | grep -q "^  $profile .*loaded"; then
        certify $profile $profile --backend cpu --profile $profile "$@"
    fi
done
if "$command" info | grep -q "^  cuda .*loaded" && "$command" info | grep -qv "no CUDA"; then
    certify cuda_cupy cuda_cupy --backend cuda --level training "$@"
fi
exit $failed
