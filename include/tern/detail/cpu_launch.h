/* tern/detail/cpu_launch.h - registration of kernels and launches on the CPU device. C++ only where types must be deduced. */
#ifndef TERN_DETAIL_CPU_LAUNCH_H
#define TERN_DETAIL_CPU_LAUNCH_H

#include <type_traits>
#include <utility>
#include <tern/detail/cpu_abi.h>
#include <tern/detail/cpu_runtime.h>
#include <tern/detail/cpu_types.h>

/* Calls a kernel with the arguments' copies. */
template <class... P> struct tern_cpu_thunk {
    template <size_t... I> static void unpack(void (*f)(P...), void **args, std::index_sequence<I...>)
    {
        (void)args;
        f(*(typename std::remove_const<P>::type *)args[I]...);
    }
    static void call(const void *function, void **args)
    {
        unpack((void (*)(P...))function, args, std::index_sequence_for<P...>());
    }
    static constexpr unsigned sizes[sizeof...(P) + 1] = {(unsigned)sizeof(P)..., 0u};
};

template <class... P> static inline tern_cpu_kernel_t tern_cpu_kernel_make(void (*f)(P...), const char *name)
{
    static_assert((std::is_trivially_copyable<P>::value && ...), "a kernel's arguments must be plain data");
    static_assert((sizeof(P) + ... + 0) <= 4096, "a kernel's arguments take at most 4096 bytes");
    return {(const void *)f, name, (unsigned)sizeof...(P), tern_cpu_thunk<P...>::sizes, tern_cpu_thunk<P...>::call,
            TERN_CPU_DYNAMIC_DEFAULT, nullptr};
}

/* Behind each kernel: registers it while its program or shared object is loaded. Not a static object with a destructor, */
/* which would be registered in the order of use. */
#define TERN_CPU_REGISTER(f) TERN_CPU_REGISTER_AT(f, __COUNTER__)
#define TERN_CPU_REGISTER_AT(f, n) TERN_CPU_REGISTER_AS(f, n)
#define TERN_CPU_REGISTER_AS(f, n)                                                                                     \
    static tern_cpu_kernel_t tern_cpu_kernel_##n;                                                                      \
    __attribute__((constructor)) static void tern_cpu_load_##n(void)                                                   \
    {                                                                                                                  \
        tern_cpu_kernel_##n = tern_cpu_kernel_make(f, #f);                                                             \
        tern_cpu_kernel_register(&tern_cpu_kernel_##n);                                                                \
    }                                                                                                                  \
    __attribute__((destructor)) static void tern_cpu_unload_##n(void)                                                  \
    {                                                                                                                  \
        tern_cpu_kernel_unregister(&tern_cpu_kernel_##n);                                                              \
    }

/* kernel<<<grid, block, smem, stream>>>(args) has become tern_cpu_call(kernel, grid, block, smem, stream)(args). */
template <class... P> struct tern_cpu_caller {
    void (*kernel)(P...);
    dim3 grid, block;
    size_t smem;
    cudaStream_t stream;
    void operator()(P... args) const
    {
        void *list[] = {(void *)&args..., nullptr};
        (void)cudaLaunchKernel((const void *)kernel, grid, block, list, smem, stream);
    }
};
template <class... P>
static inline tern_cpu_caller<P...> tern_cpu_call(void (*kernel)(P...), dim3 grid, dim3 block, size_t smem = 0,
                                                  cudaStream_t stream = nullptr)
{
    return {kernel, grid, block, smem, stream};
}

static inline tern_status_t tern_launch_ptr(const void *kernel, dim3 grid, dim3 block, void **args, size_t smem,
                                            tern_stream_t stream)
{
    return tern_cpu_launch_status(kernel, {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, args, smem, stream);
}
/* The arguments are converted to the kernel's parameter types, as in a call. */
template <class... P, class... A>
static inline tern_status_t tern_launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t smem, tern_stream_t stream,
                                        A... args)
{
    static_assert(sizeof...(P) == sizeof...(A), "tern_launch: number of arguments");
    return [&](P... values) {
        void *list[] = {(void *)&values..., nullptr};
        return tern_launch_ptr((const void *)kernel, grid, block, list, smem, stream);
    }(args...);
}

#endif
