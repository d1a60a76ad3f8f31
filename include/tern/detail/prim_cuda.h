/*
 * tern/detail/prim_cuda.h - the memory primitives of prim.h in PTX, and the bulk-async copy engine of sm_90 and later.
 * The only file of the CUDA device that contains PTX, fences or atomics. Loads and stores that synchronise, and atomics,
 * address global memory (the heap, the state block, pinned host memory); the others take any generic address.
 */
#ifndef TERN_DETAIL_PRIM_CUDA_H
#define TERN_DETAIL_PRIM_CUDA_H

#define TERN_PRIM static __device__ __forceinline__

/* name suffix, C type, PTX type, register constraint, C type of the register */
#define TERN_PRIM_LD(name, op, T, R, c)                                                                                \
    TERN_PRIM T tern_prim_ld_##name(const T *p)                                                                        \
    {                                                                                                                  \
        R v;                                                                                                           \
        asm volatile("ld." op " %0, [%1];" : "=" c(v) : "l"(p) : "memory");                                            \
        return (T)v;                                                                                                   \
    }
#define TERN_PRIM_ST(name, op, T, R, c)                                                                                \
    TERN_PRIM void tern_prim_st_##name(T *p, T v)                                                                      \
    {                                                                                                                  \
        asm volatile("st." op " [%0], %1;" : : "l"(p), c((R)v) : "memory");                                            \
    }

TERN_PRIM_LD(relaxed_u8, "relaxed.sys.u8", uint8_t, uint32_t, "r")
TERN_PRIM_LD(relaxed_u16, "relaxed.sys.u16", uint16_t, uint16_t, "h")
TERN_PRIM_LD(relaxed_u32, "relaxed.sys.u32", uint32_t, uint32_t, "r")
TERN_PRIM_LD(relaxed_u64, "relaxed.sys.u64", uint64_t, uint64_t, "l")
TERN_PRIM_LD(acquire_u32, "acquire.sys.global.u32", uint32_t, uint32_t, "r")
TERN_PRIM_LD(acquire_u64, "acquire.sys.global.u64", uint64_t, uint64_t, "l")
TERN_PRIM_LD(acquire_gpu_u64, "acquire.gpu.global.u64", uint64_t, uint64_t, "l")
TERN_PRIM_ST(relaxed_u8, "relaxed.sys.u8", uint8_t, uint32_t, "r")
TERN_PRIM_ST(relaxed_u16, "relaxed.sys.u16", uint16_t, uint16_t, "h")
TERN_PRIM_ST(relaxed_u32, "relaxed.sys.u32", uint32_t, uint32_t, "r")
TERN_PRIM_ST(relaxed_u64, "relaxed.sys.u64", uint64_t, uint64_t, "l")
TERN_PRIM_ST(release_u32, "release.sys.global.u32", uint32_t, uint32_t, "r")
TERN_PRIM_ST(release_u64, "release.sys.global.u64", uint64_t, uint64_t, "l")
TERN_PRIM_ST(release_gpu_u32, "release.gpu.global.u32", uint32_t, uint32_t, "r")

TERN_PRIM tern_v4_t tern_prim_ld_v4(const void *p)
{
    tern_v4_t v;
    asm volatile("ld.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}

TERN_PRIM void tern_prim_st_v4(void *p, tern_v4_t v)
{
    asm volatile("st.v4.u32 [%0], {%1, %2, %3, %4};" : : "l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

#define TERN_PRIM_RMW(name, op, T, c)                                                                                  \
    TERN_PRIM T tern_prim_rmw_##name(T *p, T v)                                                                        \
    {                                                                                                                  \
        T old;                                                                                                         \
        asm volatile("atom.relaxed.sys.global." op " %0, [%1], %2;" : "=" c(old) : "l"(p), c(v) : "memory");           \
        return old;                                                                                                    \
    }
#define TERN_PRIM_RED(name, op, T, c)                                                                                  \
    TERN_PRIM void tern_prim_red_##name(T *p, T v)                                                                     \
    {                                                                                                                  \
        asm volatile("red.relaxed.sys.global." op " [%0], %1;" : : "l"(p), c(v) : "memory");                           \
    }
#define TERN_PRIM_CAS(name, op, T, c)                                                                                  \
    TERN_PRIM T tern_prim_rmw_##name(T *p, T compare, T value)                                                         \
    {                                                                                                                  \
        T old;                                                                                                         \
        asm volatile("atom.relaxed.sys.global." op " %0, [%1], %2, %3;"                                                \
                     : "=" c(old)                                                                                      \
                     : "l"(p), c(compare), c(value)                                                                    \
                     : "memory");                                                                                      \
        return old;                                                                                                    \
    }

TERN_PRIM_RMW(add_u32, "add.u32", uint32_t, "r")
TERN_PRIM_RMW(and_u32, "and.b32", uint32_t, "r")
TERN_PRIM_RMW(or_u32, "or.b32", uint32_t, "r")
TERN_PRIM_RMW(xor_u32, "xor.b32", uint32_t, "r")
TERN_PRIM_RMW(swap_u32, "exch.b32", uint32_t, "r")
TERN_PRIM_RMW(add_u64, "add.u64", uint64_t, "l")
TERN_PRIM_RMW(and_u64, "and.b64", uint64_t, "l")
TERN_PRIM_RMW(or_u64, "or.b64", uint64_t, "l")
TERN_PRIM_RMW(xor_u64, "xor.b64", uint64_t, "l")
TERN_PRIM_RMW(swap_u64, "exch.b64", uint64_t, "l")
TERN_PRIM_RMW(add_f32, "add.f32", float, "f")
TERN_PRIM_RMW(add_f64, "add.f64", double, "d")
TERN_PRIM_CAS(cas_u32, "cas.b32", uint32_t, "r")
TERN_PRIM_CAS(cas_u64, "cas.b64", uint64_t, "l")
TERN_PRIM_RED(add_u32, "add.u32", uint32_t, "r")
TERN_PRIM_RED(and_u32, "and.b32", uint32_t, "r")
TERN_PRIM_RED(or_u32, "or.b32", uint32_t, "r")
TERN_PRIM_RED(xor_u32, "xor.b32", uint32_t, "r")
TERN_PRIM_RED(add_u64, "add.u64", uint64_t, "l")
TERN_PRIM_RED(and_u64, "and.b64", uint64_t, "l")
TERN_PRIM_RED(or_u64, "or.b64", uint64_t, "l")
TERN_PRIM_RED(xor_u64, "xor.b64", uint64_t, "l")

/* The fence is hardly ever executed: it gives the branch something to do. */
TERN_PRIM void tern_prim_arrived(uint64_t v)
{
    asm volatile("{ .reg .pred p; setp.eq.u64 p, %0, 0x7465726e2d6d6167; @p fence.acq_rel.gpu; }" : : "l"(v) : "memory");
}

TERN_PRIM void tern_prim_st_unit(uint64_t *p, uint64_t w0, uint64_t w1)
{
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" : : "l"(p), "l"(w0), "l"(w1) : "memory");
}

TERN_PRIM uint32_t tern_prim_grid_id(void)
{
    uint64_t id;
    asm("mov.u64 %0, %%gridid;" : "=l"(id));
    return (uint32_t)id;
}

#undef TERN_PRIM_LD
#undef TERN_PRIM_ST
#undef TERN_PRIM_RMW
#undef TERN_PRIM_RED
#undef TERN_PRIM_CAS

TERN_PRIM void tern_prim_fence_sys(void)
{
    asm volatile("fence.acq_rel.sys;" : : : "memory");
}

TERN_PRIM void tern_prim_fence_gpu(void)
{
    asm volatile("fence.acq_rel.gpu;" : : : "memory");
}

#define TERN_PRIM_FENCE_EACH 0

TERN_PRIM void tern_prim_fence_async(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async;" : : : "memory");
#endif
}

TERN_PRIM uint64_t tern_prim_clock_ns(void)
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns) : : "memory");
    return ns;
}

/* Lanes make progress by themselves; a sleep would only add to the wait's latency. */
TERN_PRIM void tern_prim_pause(void)
{
}

TERN_PRIM bool tern_prim_unknown(bool v)
{
    uint32_t word = v;
    asm volatile("" : "+r"(word));
    return word;
}

TERN_PRIM void tern_prim_completed(void)
{
}

TERN_PRIM void tern_prim_landed(const void *, size_t)
{
}

TERN_PRIM bool tern_prim_is_shared(const void *p)
{
    return __isShared(p);
}

/* ---- bulk-async copies between global and shared memory ------------------------------------------------------------- */
#if __CUDA_ARCH__ >= 900
#define TERN_PRIM_BULK 1

TERN_PRIM bool tern_prim_is_global(const void *p)
{
    return __isGlobal(p);
}

TERN_PRIM uint32_t tern_prim_shared_addr(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* A barrier word for one arrival a phase; call tern_prim_fence_async() between this and the first bulk load. */
TERN_PRIM void tern_prim_bulk_init(uint32_t barrier)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" : : "r"(barrier) : "memory");
}

TERN_PRIM void tern_prim_bulk_end(uint32_t barrier)
{
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" : : "r"(barrier) : "memory");
}

/* Global to shared; the barrier's phase completes when the bytes are there. 16-byte aligned, multiples of 16 bytes. */
TERN_PRIM void tern_prim_bulk_load(uint32_t shared, const void *global, uint32_t bytes, uint32_t barrier)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(barrier), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :
                 : "r"(shared), "l"(global), "r"(bytes), "r"(barrier)
                 : "memory");
}

TERN_PRIM void tern_prim_bulk_load_wait(uint32_t barrier, uint32_t phase)
{
    uint32_t done;
    do {
        asm volatile("{ .reg .pred p;\n\t"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(barrier), "r"(phase)
                     : "memory");
    } while (!done);
}

/* Shared to global, one group of the issuing thread for each store. */
TERN_PRIM void tern_prim_bulk_store(void *global, uint32_t shared, uint32_t bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n\t"
                 "cp.async.bulk.commit_group;"
                 :
                 : "l"(global), "r"(shared), "r"(bytes)
                 : "memory");
}

/* All but the thread's last store have read their shared memory. */
TERN_PRIM void tern_prim_bulk_store_read_but_last(void)
{
    asm volatile("cp.async.bulk.wait_group.read 1;" : : : "memory");
}

/* The thread's stores are written, and ordered before what it does next. */
TERN_PRIM void tern_prim_bulk_store_wait(void)
{
    asm volatile("cp.async.bulk.wait_group 0;" : : : "memory");
}
#endif

#undef TERN_PRIM
#endif
