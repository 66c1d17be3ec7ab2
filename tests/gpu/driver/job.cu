// A program in CUDA C++ that uses no framework. job MODE SECONDS
//   leak, clean                 rounds of work: two buffers each, and one that is kept for ever or freed
//   bench                       how long a stream-ordered allocation and its free take, in nanoseconds
//   server-leak, server-clean   four threads that answer requests, with a cache that keeps everything or the last 64 answers
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

constexpr size_t MIB = size_t(1) << 20;
#define DO(call) do { cudaError_t e = (call); if (e != cudaSuccess) { printf("%s: %s\n", #call, cudaGetErrorString(e)); exit(1); } } while (0)

__global__ void fill(float *p, size_t n, float v) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) p[i] = v;
}

__attribute__((noinline)) static float *keep(size_t bytes) {
    void *p = nullptr;
    DO(cudaMalloc(&p, bytes)); // LEAK
    return static_cast<float *>(p);
}

using Clock = std::chrono::steady_clock;
static bool pause_until(Clock::time_point end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return Clock::now() < end;
}

static float first(const float *p, cudaStream_t s) {
    float v = 0;
    DO(cudaMemcpyAsync(&v, p, sizeof v, cudaMemcpyDeviceToHost, s));
    DO(cudaStreamSynchronize(s));
    return v;
}

static void rounds(bool leaks, Clock::time_point end) {
    cudaStream_t s;
    DO(cudaStreamCreate(&s));
    float *weights = keep(64 * MIB);
    fill<<<64, 256, 0, s>>>(weights, 64 * MIB / 4, 2);
    do {
        void *a = nullptr, *b = nullptr;
        DO(cudaMallocAsync(&a, 3 * MIB, s));
        DO(cudaMalloc(&b, 5 * MIB));
        float *kept = keep(8 * MIB);
        fill<<<64, 256, 0, s>>>(kept, 8 * MIB / 4, 3);
        if (first(kept, s) != 3) { printf("wrong\n"); exit(1); }
        if (!leaks) DO(cudaFree(kept));
        DO(cudaFree(b));
        DO(cudaFreeAsync(a, s));
    } while (pause_until(end));
    printf("weights %.0f\n", first(weights, s));
    DO(cudaFree(weights));
}

static std::mutex lock;
static std::deque<float *> answers;

static void serve(bool leaks, int n, Clock::time_point end) {
    cudaStream_t s;
    DO(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    do {
        void *request = nullptr;
        DO(cudaMallocAsync(&request, 2 * MIB, s));
        float *answer = keep(4 * MIB);
        fill<<<64, 256, 0, s>>>(answer, MIB, float(n));
        if (first(answer, s) != float(n)) { printf("wrong\n"); exit(1); }
        DO(cudaFreeAsync(request, s));
        float *old = nullptr;
        {
            std::lock_guard<std::mutex> guard(lock);
            answers.push_back(answer);
            if (!leaks && answers.size() > 64) { old = answers.front(); answers.pop_front(); }
        }
        if (old) DO(cudaFree(old));
    } while (pause_until(end));
}

static void bench(double seconds) {
    cudaStream_t s;
    DO(cudaStreamCreate(&s));
    void *first = nullptr; // keeps the driver's pool from giving everything back
    DO(cudaMallocAsync(&first, MIB, s));
    const int pairs = 2000;
    double best = 1e9;
    auto begin = Clock::now();
    do {
        auto from = Clock::now();
        for (int i = 0; i < pairs; i++) {
            void *p = nullptr;
            DO(cudaMallocAsync(&p, 64 << 10, s));
            DO(cudaFreeAsync(p, s));
        }
        double ns = std::chrono::duration<double, std::nano>(Clock::now() - from).count() / pairs;
        if (ns < best) best = ns;
        DO(cudaStreamSynchronize(s));
    } while (std::chrono::duration<double>(Clock::now() - begin).count() < seconds);
    printf("%.0f\n", best);
}

int main(int n, char **arg) {
    if (n < 3) return 2;
    auto end = Clock::now() + std::chrono::milliseconds(int(1000 * atof(arg[2])));
    bool leaks = strstr(arg[1], "leak") != nullptr;
    size_t free_bytes = 0, total = 0;
    DO(cudaMemGetInfo(&free_bytes, &total));
    if (!strcmp(arg[1], "bench")) {
        bench(atof(arg[2]));
        return 0;
    }
    if (strncmp(arg[1], "server", 6)) {
        rounds(leaks, end);
    } else {
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; i++) threads.emplace_back(serve, leaks, i, end);
        for (auto &t : threads) t.join();
    }
    printf("done\n");
    return 0;
}
