/*
 * stream.cu - streams, events, graphs, copies and errors behave as CUDA says: order in a stream, streams beside each other,
 * the legacy default stream, events and their times, capture and replay, what is refused and how it is told.
 */
#include <unistd.h>
#include <tern/device.h>
#include "common/check.h"

#define OK(call) REQUIRE((call) == cudaSuccess, "%s: %s", #call, cudaGetErrorString(cudaGetLastError()))

__global__ void wait_for(uint32_t *word, uint32_t value)
{
    if (threadIdx.x == 0)
        while (tern_prim_ld_acquire_u32(word) != value)
            tern_prim_pause();
    __syncthreads();
}

__global__ void store(uint32_t *word, uint32_t value)
{
    tern_prim_st_release_u32(word, value);
}

__global__ void store_late(uint32_t *word, uint32_t value)
{
    for (uint64_t end = tern_prim_clock_ns() + 20000000; tern_prim_clock_ns() < end;)
        tern_prim_pause();
    tern_prim_st_release_u32(word, value);
}

__global__ void append(uint32_t *log, uint32_t value)
{
    if (threadIdx.x == 0) {
        log[1 + log[0]] = value;
        log[0]++;
    }
}

static uint32_t *words(unsigned n)
{
    uint32_t *p;
    OK(cudaMallocHost(&p, n * sizeof *p));
    memset(p, 0, n * sizeof *p);
    return p;
}

/* A kernel that waits for one in another stream, which was launched later: both must run. */
static void test_concurrent(void)
{
    cudaStream_t a, b;
    uint32_t *w = words(2);
    OK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    OK(cudaStreamCreate(&b));
    wait_for<<<1, 32, 0, a>>>(w, 1);
    CHECK(cudaStreamQuery(a) == cudaErrorNotReady, "the kernel cannot have ended");
    CHECK(cudaPeekAtLastError() == cudaSuccess, "not ready is not an error to keep");
    store<<<1, 1, 0, b>>>(w, 1);
    OK(cudaStreamSynchronize(a));
    OK(cudaStreamSynchronize(b));
    CHECK(cudaStreamQuery(a) == cudaSuccess, "ended");
    wait_for<<<1, 32, 0, b>>>(w, 2);    /* the default stream waits for b, not for a */
    store_late<<<1, 1, 0, a>>>(w, 2);
    uint32_t got = 0;
    OK(cudaMemcpy(&got, w, sizeof got, cudaMemcpyDeviceToHost));
    CHECK(got == 2, "the default stream did not wait for a blocking stream: %u", got);
    store_late<<<1, 1>>>(w, 5);         /* and b waits for the default stream */
    OK(cudaMemcpyAsync(&got, w, sizeof got, cudaMemcpyDeviceToHost, b));
    OK(cudaStreamSynchronize(b));
    CHECK(got == 5, "a blocking stream did not wait for the default stream: %u", got);
    OK(cudaStreamDestroy(a));
    wait_for<<<1, 1, 0, b>>>(w, 3);     /* a stream may be destroyed before its work ends */
    OK(cudaStreamDestroy(b));
    __atomic_store_n(w, 3, __ATOMIC_RELEASE);
    OK(cudaDeviceSynchronize());
    OK(cudaFreeHost(w));
}

/* Operations of one stream happen in order, whatever they are. */
static void test_order(uint64_t *seed)
{
    cudaStream_t s;
    uint32_t *log = words(400), *from = words(1), to = 0, count = 0;
    unsigned char *bytes;
    OK(cudaStreamCreate(&s));
    OK(cudaMalloc(&bytes, 1000));
    for (unsigned i = 0; i < 300; i++) {
        unsigned kind = (unsigned)(test_random(seed) % 3);
        if (kind == 0) {
            append<<<1 + i % 1, 1 + i % 64, 0, s>>>(log, count++);
        } else if (kind == 1) {
            OK(cudaMemsetAsync(bytes, (int)i, 1000, s));
            OK(cudaMemcpyAsync(&to, bytes + 3, 4, cudaMemcpyDeviceToHost, s));
        } else {
            *from = i;
            OK(cudaMemcpyAsync(bytes, from, 4, cudaMemcpyHostToDevice, s));
            OK(cudaStreamSynchronize(s));
            OK(cudaMemcpy(&to, bytes, 4, cudaMemcpyDeviceToHost));
            CHECK(to == i, "copied %u, not %u", to, i);
        }
    }
    OK(cudaStreamSynchronize(s));
    CHECK(log[0] == count, "%u of %u kernels ran", log[0], count);
    for (unsigned i = 0; i < count; i++)
        CHECK(log[1 + i] == i, "kernel %u ran as number %u", log[1 + i], i);
    OK(cudaStreamDestroy(s));
    OK(cudaFree(bytes));
    OK(cudaFreeHost(log));
    OK(cudaFreeHost(from));
}

static void test_events(void)
{
    cudaStream_t a, b;
    cudaEvent_t start, end, never;
    uint32_t *w = words(2);
    float ms = -1;
    OK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    OK(cudaEventCreate(&start));
    OK(cudaEventCreateWithFlags(&end, cudaEventDefault));
    OK(cudaEventCreate(&never));
    OK(cudaStreamWaitEvent(b, never, 0));   /* an event that was not recorded stops nobody */
    OK(cudaEventRecord(start, a));
    wait_for<<<1, 1, 0, a>>>(w, 1);
    OK(cudaEventRecord(end, a));
    OK(cudaStreamWaitEvent(b, end, 0));
    store<<<1, 1, 0, b>>>(w + 1, 7);
    OK(cudaEventSynchronize(start));
    CHECK(cudaEventQuery(end) == cudaErrorNotReady, "the event cannot have been reached");
    CHECK(cudaEventElapsedTime(&ms, start, end) == cudaErrorNotReady, "no time yet");
    usleep(20000);
    CHECK(__atomic_load_n(w + 1, __ATOMIC_ACQUIRE) == 0, "the second stream did not wait");
    (void)cudaGetLastError();
    __atomic_store_n(w, 1, __ATOMIC_RELEASE);
    OK(cudaStreamSynchronize(b));
    CHECK(w[1] == 7, "%u", w[1]);
    OK(cudaEventSynchronize(end));
    OK(cudaEventElapsedTime(&ms, start, end));
    CHECK(ms > 0, "%f ms", ms);
    OK(cudaEventDestroy(start));
    OK(cudaEventDestroy(end));
    OK(cudaEventDestroy(never));
    OK(cudaStreamDestroy(a));
    OK(cudaStreamDestroy(b));
    OK(cudaFreeHost(w));
}

/* Two streams are captured: fork and join by events. The replay runs as often as it is launched, with the captured arguments. */
static void test_graph(void)
{
    cudaStream_t a, b, c;
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    enum cudaStreamCaptureStatus status;
    uint32_t *log = words(64), *other = words(64), value = 5;
    OK(cudaStreamCreate(&a));
    OK(cudaStreamCreate(&b));
    OK(cudaStreamCreateWithFlags(&c, cudaStreamNonBlocking));
    OK(cudaEventCreate(&fork));
    OK(cudaEventCreate(&join));
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
    OK(cudaStreamIsCapturing(a, &status));
    CHECK(status == cudaStreamCaptureStatusActive, "%d", (int)status);
    append<<<1, 32, 0, a>>>(log, value);
    value = 6;
    OK(cudaEventRecord(fork, a));
    OK(cudaStreamWaitEvent(b, fork, 0));
    append<<<1, 32, 0, b>>>(other, value);
    OK(cudaMemcpyAsync(other + 40, other + 1, 4, cudaMemcpyDefault, b));
    OK(cudaEventRecord(join, b));
    append<<<1, 32, 0, a>>>(log, 7u);
    OK(cudaStreamWaitEvent(a, join, 0));
    append<<<1, 32, 0, a>>>(log, 8u);
    OK(cudaStreamEndCapture(a, &graph));
    OK(cudaDeviceSynchronize());
    CHECK(log[0] == 0 && other[0] == 0, "capture must not run anything");
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    for (int i = 0; i < 5; i++)
        OK(cudaGraphLaunch(exec, i % 2 ? a : c));
    OK(cudaDeviceSynchronize());
    CHECK(other[0] == 5 && other[5] == 6 && other[40] == 6, "forked stream: %u kernels, last %u", other[0], other[5]);
    CHECK(log[0] == 15, "%u kernels", log[0]);
    OK(cudaGraphExecDestroy(exec));
    append<<<1, 1, 0, b>>>(log, 9u);    /* the streams work as before */
    OK(cudaStreamSynchronize(b));
    CHECK(log[0] == 16, "%u kernels", log[0]);

    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
    OK(cudaEventRecord(fork, a));
    OK(cudaStreamWaitEvent(b, fork, 0));
    append<<<1, 1, 0, b>>>(log, 1u);
    CHECK(cudaStreamEndCapture(a, &graph) == cudaErrorStreamCaptureUnjoined, "a forked stream was not joined");
    CHECK(cudaStreamEndCapture(a, &graph) != cudaSuccess, "nothing is captured");
    CHECK(cudaStreamBeginCapture(0, cudaStreamCaptureModeRelaxed) != cudaSuccess, "the default stream is not captured");
    (void)cudaGetLastError();
    OK(cudaEventDestroy(fork));
    OK(cudaEventDestroy(join));
    OK(cudaStreamDestroy(a));
    OK(cudaStreamDestroy(b));
    OK(cudaStreamDestroy(c));
    OK(cudaFreeHost(log));
    OK(cudaFreeHost(other));
}

__global__ void uses_shared(unsigned bytes, uint32_t *out)
{
    extern __shared__ char dynamic[];
    if (threadIdx.x == 0) {
        dynamic[0] = 1;
        dynamic[bytes - 1] = 2;
        *out = bytes;
    }
}

static void not_a_kernel(void)
{
}

static void test_errors(void)
{
    uint32_t *w = words(1);
    void *args[] = {&w, &w};
    CHECK(cudaLaunchKernel((const void *)not_a_kernel, dim3(1), dim3(1), args, 0, 0) == cudaErrorInvalidDeviceFunction,
          "a host function was launched");
    CHECK(tern_launch_ptr((const void *)not_a_kernel, 1, 1, args, 0, NULL) != TERN_OK, "a host function was launched");
    CHECK(strstr(tern_last_error(), "tern-cc"), "no remedy: %s", tern_last_error());
    (void)cudaGetLastError();
    store<<<1, 2000>>>(w, 1u);
    CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration, "2000 threads");
    CHECK(cudaGetLastError() == cudaSuccess, "an error is told once");
    store<<<0, 1>>>(w, 1u);
    CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration, "no blocks");
    CHECK(tern_launch(store, 1, dim3(1, 1, 65), 0, NULL, w, 1u) == TERN_ERR_INVALID, "z of 65");
    (void)cudaGetLastError();
    CHECK(tern_launch(uses_shared, 1, 1, 100000, NULL, 100000u, w) == TERN_ERR_INVALID, "shared memory without a request");
    CHECK(strstr(tern_last_error(), "cudaFuncSetAttribute"), "no remedy: %s", tern_last_error());
    (void)cudaGetLastError();
    OK(cudaFuncSetAttribute(uses_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 200000));
    CHECK(tern_launch(uses_shared, 1, 1, 200000, NULL, 200000u, w) == TERN_OK, "%s", tern_last_error());
    OK(cudaDeviceSynchronize());
    CHECK(*w == 200000, "%u", *w);
    CHECK(cudaFuncSetAttribute(uses_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 300000) == cudaErrorInvalidValue,
          "more than the device has");
    (void)cudaGetLastError();
    int sms = 0, device = -1, count = 0;
    OK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    OK(cudaGetDeviceCount(&count));
    OK(cudaSetDevice(0));
    OK(cudaGetDevice(&device));
    CHECK(sms > 0 && count > 0 && device == 0, "%d multiprocessors, device %d of %d", sms, device, count);
    OK(cudaFreeHost(w));
}

int main(void)
{
    uint64_t seed = test_seed();
    test_order(&seed);
    test_concurrent();
    test_events();
    test_graph();
    test_errors();
    return test_end("stream");
}
