/* cuda_runtime_api.h - stands in for CUDA's header on the CPU device: tern-cc has already included what it declares. */
#include <tern/detail/cpu.h>
