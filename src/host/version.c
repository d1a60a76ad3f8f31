/* version.c - which library this is. */
#include <tern/tern.h>

int tern_version(void)
{
    return TERN_VERSION_MAJOR * 10000 + TERN_VERSION_MINOR * 100 + TERN_VERSION_PATCH;
}

const char *tern_device_name(void)
{
#ifdef TERN_DEVICE_CUDA
    return "cuda";
#else
    return "cpu";
#endif
}
