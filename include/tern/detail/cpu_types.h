/* tern/detail/cpu_types.h - CUDA's dim3, vector types and bf16 for the CPU device. */
#ifndef TERN_DETAIL_CPU_TYPES_H
#define TERN_DETAIL_CPU_TYPES_H

#include <stdint.h>
#include <string.h>
#include <tern/detail/cpu_abi.h>

#define TERN_CPU_VECTORS(type, name, align2, align4)                                                                   \
    struct name##1 {                                                                                                   \
        type x;                                                                                                        \
    };                                                                                                                 \
    struct alignas(align2) name##2 {                                                                                   \
        type x, y;                                                                                                     \
    };                                                                                                                 \
    struct alignas(align4) name##4 {                                                                                   \
        type x, y, z, w;                                                                                               \
    };                                                                                                                 \
    static inline name##1 make_##name##1(type x)                                                                       \
    {                                                                                                                  \
        return {x};                                                                                                    \
    }                                                                                                                  \
    static inline name##2 make_##name##2(type x, type y)                                                               \
    {                                                                                                                  \
        return {x, y};                                                                                                 \
    }                                                                                                                  \
    static inline name##3 make_##name##3(type x, type y, type z)                                                       \
    {                                                                                                                  \
        return {x, y, z};                                                                                              \
    }                                                                                                                  \
    static inline name##4 make_##name##4(type x, type y, type z, type w)                                               \
    {                                                                                                                  \
        return {x, y, z, w};                                                                                           \
    }
#define TERN_CPU_VECTOR3(type, name)                                                                                   \
    struct name##3 {                                                                                                   \
        type x, y, z;                                                                                                  \
    };
TERN_CPU_VECTOR3(signed char, char)
TERN_CPU_VECTOR3(unsigned char, uchar)
TERN_CPU_VECTOR3(short, short)
TERN_CPU_VECTOR3(unsigned short, ushort)
TERN_CPU_VECTOR3(int, int)
TERN_CPU_VECTOR3(float, float)
TERN_CPU_VECTOR3(long long, longlong)
TERN_CPU_VECTOR3(unsigned long long, ulonglong)
TERN_CPU_VECTOR3(double, double)
typedef tern_cpu_dim_t uint3;           /* type of threadIdx */
TERN_CPU_VECTORS(signed char, char, 2, 4)
TERN_CPU_VECTORS(unsigned char, uchar, 2, 4)
TERN_CPU_VECTORS(short, short, 4, 8)
TERN_CPU_VECTORS(unsigned short, ushort, 4, 8)
TERN_CPU_VECTORS(int, int, 8, 16)
TERN_CPU_VECTORS(unsigned, uint, 8, 16)
TERN_CPU_VECTORS(float, float, 8, 16)
TERN_CPU_VECTORS(long long, longlong, 16, 16)
TERN_CPU_VECTORS(unsigned long long, ulonglong, 16, 16)
TERN_CPU_VECTORS(double, double, 16, 16)
#undef TERN_CPU_VECTORS
#undef TERN_CPU_VECTOR3

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z)
    {
    }
};

/* bfloat16: the upper half of a float, rounded to nearest even. */
struct __nv_bfloat16_raw {
    unsigned short x;
};
struct __nv_bfloat16 {
    unsigned short bits;
};
typedef __nv_bfloat16 nv_bfloat16;
struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};
typedef __nv_bfloat162 nv_bfloat162;

static inline __nv_bfloat16 __float2bfloat16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return {0x7fff};
    return {(unsigned short)((u + 0x7fffu + (u >> 16 & 1u)) >> 16)};
}
#define __float2bfloat16_rn(f) __float2bfloat16(f)
static inline float __bfloat162float(__nv_bfloat16 b)
{
    uint32_t u = (uint32_t)b.bits << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
    return {bits};
}
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 b)
{
    return b.bits;
}
static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return {__float2bfloat16(x), __float2bfloat16(y)};
}
static inline float __low2float(__nv_bfloat162 v)
{
    return __bfloat162float(v.x);
}
static inline float __high2float(__nv_bfloat162 v)
{
    return __bfloat162float(v.y);
}
static inline float2 __bfloat1622float2(__nv_bfloat162 v)
{
    return {__bfloat162float(v.x), __bfloat162float(v.y)};
}

#endif
