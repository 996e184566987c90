// What CUDA C++ needs to run on the host: a block's threads are fibers of one thread of the host.
//
// They switch where threads wait for each other, in an order that the caller chooses, and a warp
// runs ahead of the others as far as it can, so that a missing barrier shows in one order or the
// other. A thread that has left before a barrier, or
// lanes of a warp at different ones, are errors here. Blocks run one after the other.
#include <cmath>
#include <cstring>
#include <ucontext.h>
#include <utility>
#include <vector>

using std::exp; using std::log; using std::sqrt; using std::tanh; using std::erf;
using std::fabs; using std::pow; using std::log1p; using std::cos; using std::sin;

struct Place { unsigned int x, y, z; };
static Place threadIdx, blockIdx, blockDim, gridDim;

enum State { READY, AT_BLOCK, AT_WARP, LEFT };
struct Fiber {
    ucontext_t context;
    State state;
    char stack[1 << 15];
};
static std::vector<Fiber*> fibers;
static ucontext_t outside;
static Fiber* running;
static unsigned long long exchanged[1024];
static void (*body)(void**);
static void** given;

static void wait_at(State where) {
    running->state = where;
    swapcontext(&running->context, &outside);
}
static void run_body() {
    body(given);
    running->state = LEFT;
    swapcontext(&running->context, &outside);
}
static void resume(unsigned int x) {
    running = fibers[x];
    threadIdx.x = x;
    swapcontext(&outside, &running->context);
}

// Lets the threads [first, end) go on where all of them wait at a place; false where they do not.
static bool released(unsigned int first, unsigned int end, State place) {
    for (unsigned int x = first; x < end; x++) if (fibers[x]->state != place) return false;
    for (unsigned int x = first; x < end; x++) fibers[x]->state = READY;
    return true;
}

// 0 when all threads have left, 1 where some wait for ever. A warp runs as far ahead of the others
// as barriers let it.
static int run_block(unsigned int count, bool backward) {
    for (unsigned int x = 0; x < count; x++) {
        Fiber* fiber = fibers[x];
        getcontext(&fiber->context);
        fiber->context.uc_stack.ss_sp = fiber->stack;
        fiber->context.uc_stack.ss_size = sizeof fiber->stack;
        fiber->context.uc_link = nullptr;
        fiber->state = READY;
        makecontext(&fiber->context, run_body, 0);
    }
    unsigned int warps = (count + 31) / 32;
    do {
        for (unsigned int w = 0; w < warps; w++) {
            unsigned int first = 32 * (backward ? warps - 1 - w : w);
            unsigned int end = first + 32 < count ? first + 32 : count;
            do {
                for (unsigned int k = first; k < end; k++) {
                    unsigned int x = backward ? first + end - 1 - k : k;
                    if (fibers[x]->state == READY) resume(x);
                }
            } while (released(first, end, AT_WARP));
        }
    } while (released(0, count, AT_BLOCK));
    for (unsigned int x = 0; x < count; x++) if (fibers[x]->state != LEFT) return 1;
    return 0;
}
static int run_grid(void (*kernel)(void**), unsigned int grid, unsigned int block, void** args,
                    bool backward) {
    while (fibers.size() < block) fibers.push_back(new Fiber);
    body = kernel;
    given = args;
    gridDim = {grid, 1, 1};
    blockDim = {block, 1, 1};
    for (unsigned int b = 0; b < grid; b++) {
        blockIdx.x = backward ? grid - 1 - b : b;
        if (run_block(block, backward)) return 1;
    }
    return 0;
}

#define __global__ static
#define __device__
#define __shared__ static
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
static void __syncthreads() { wait_at(AT_BLOCK); }
static void __threadfence() {}  // blocks follow each other
static void __syncwarp() { wait_at(AT_WARP); }
template <typename V> static V taken_from(V value, unsigned int lane) {
    std::memcpy(&exchanged[threadIdx.x], &value, sizeof value);
    wait_at(AT_WARP);
    std::memcpy(&value, &exchanged[threadIdx.x / 32 * 32 + lane], sizeof value);
    wait_at(AT_WARP);
    return value;
}
template <typename V> static V __shfl_xor_sync(unsigned int, V value, int distance) {
    return taken_from(value, threadIdx.x % 32 ^ distance);
}
template <typename V> static V __shfl_up_sync(unsigned int, V value, unsigned int distance) {
    unsigned int lane = threadIdx.x % 32;
    return taken_from(value, lane >= distance ? lane - distance : lane);
}
template <typename V> static V __shfl_sync(unsigned int, V value, int lane) {
    return taken_from(value, lane);
}
// The lanes of a warp that have the same value, as bits.
static unsigned int __match_any_sync(unsigned int, unsigned int value) {
    std::memcpy(&exchanged[threadIdx.x], &value, sizeof value);
    wait_at(AT_WARP);
    unsigned int first = threadIdx.x / 32 * 32, same = 0, other;
    for (unsigned int lane = 0; lane < 32; lane++) {
        std::memcpy(&other, &exchanged[first + lane], sizeof other);
        if (other == value) same |= 1u << lane;
    }
    wait_at(AT_WARP);
    return same;
}
// Whether a lane of a warp has something other than 0.
static int __any_sync(unsigned int, int value) {
    return __match_any_sync(0xffffffffu, value != 0) != 0xffffffffu || value != 0;
}
// The sum of the products of four signed bytes each, and `sum`.
static int __dp4a(int a, int b, int sum) {
    for (int k = 0; k < 32; k += 8) sum += (signed char)(a >> k) * (signed char)(b >> k);
    return sum;
}
static int __popc(unsigned int x) { return __builtin_popcount(x); }
// A warp's product of 16 x 16 and 16 x 8 elements of 16 bits, laid out as mma.m16n8k16 has them.
static unsigned int operands[1024][6];
template <typename Widen>
static void multiply_on_host(float (&c)[4], const unsigned int (&a)[4], unsigned int b0,
                             unsigned int b1, Widen widen) {
    unsigned int x = threadIdx.x, warp = x / 32 * 32, g = x % 32 / 4, t = x % 4;
    for (int k = 0; k < 4; k++) operands[x][k] = a[k];
    operands[x][4] = b0;
    operands[x][5] = b1;
    wait_at(AT_WARP);
    for (int i = 0; i < 4; i++) {
        unsigned int row = g + i / 2 * 8, column = 2 * t + i % 2;
        for (unsigned int k = 0; k < 16; k++) {
            unsigned int from = k % 8 / 2, shift = k % 2 * 16;
            unsigned int left = operands[warp + row % 8 * 4 + from][row / 8 + k / 8 * 2] >> shift;
            unsigned int right = operands[warp + column * 4 + from][4 + k / 8] >> shift;
            c[i] += widen(left & 0xffff) * widen(right & 0xffff);
        }
    }
    wait_at(AT_WARP);
}
template <typename V> static V atomicAdd(V* place, V value) {
    return std::exchange(*place, V(*place + value));
}
template <typename V> static V atomicCAS(V* place, V expected, V value) {
    V before = *place;
    if (before == expected) *place = value;
    return before;
}
template <typename V> static V atomicExch(V* place, V value) { return std::exchange(*place, value); }
template <typename V> static V atomicMax(V* place, V value) {
    return std::exchange(*place, *place < value ? value : *place);
}
static float __int_as_float(int bits) { float x; std::memcpy(&x, &bits, 4); return x; }
static int __float_as_int(float x) { int bits; std::memcpy(&bits, &x, 4); return bits; }
static long long __double_as_longlong(double x) {
    long long bits;
    std::memcpy(&bits, &x, 8);
    return bits;
}
