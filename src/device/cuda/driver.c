/* driver.c - loading of the CUDA driver, its error texts, and whether MPS is there. */
#include "device/cuda/driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define LIBCUDA "libcuda.so.1"

struct tern_cuda_driver tern_cuda;

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static bool loaded;

/* Fill the table. @return the first symbol that is missing, or NULL. */
static const char *load_functions(void *library)
{
    /* dlsym gives an object pointer: store it through memory, as POSIX has it */
#define STRING(name) #name
#define LOAD(name)                                                                                                     \
    do {                                                                                                               \
        void *f = dlsym(library, STRING(name));                                                                        \
        if (!f)                                                                                                        \
            return STRING(name);                                                                                       \
        memcpy(&tern_cuda.name, &f, sizeof(f));                                                                        \
    } while (0);
    TERN_CUDA_FUNCTIONS(LOAD)
#undef LOAD
#undef STRING
    return NULL;
}

static tern_status_t load_locked(void)
{
    void *library = dlopen(LIBCUDA, RTLD_NOW | RTLD_LOCAL);
    const char *missing, *text = NULL;
    CUresult result;

    if (!library)
        return tern_error(TERN_ERR_NO_DEVICE,
                          "no NVIDIA driver here (%s); install it, or use a build for the CPU device "
                          "(-Ddevice=cpu)",
                          dlerror());
    missing = load_functions(library);
    if (missing) {
        dlclose(library);
        return tern_error(TERN_ERR_NO_DEVICE,
                          "the NVIDIA driver is too old: its " LIBCUDA " lacks %s; install a newer driver", missing);
    }
    result = tern_cuda.cuInit(0);
    if (result != CUDA_SUCCESS) {
        tern_cuda.cuGetErrorString(result, &text);
        /* not closed: a driver that has started must not be unloaded */
        return tern_error(TERN_ERR_NO_DEVICE,
                          "the NVIDIA driver does not start: %s (%d); see that nvidia-smi shows a GPU, that "
                          "CUDA_VISIBLE_DEVICES does not hide it, and, with MPS, that its daemon runs",
                          text ? text : "unknown error", (int)result);
    }
    loaded = true;
    return TERN_OK;
}

tern_status_t tern_cuda_load(void)
{
    tern_status_t status = TERN_OK;

    pthread_mutex_lock(&load_lock);
    if (!loaded)
        status = load_locked();
    pthread_mutex_unlock(&load_lock);
    return status;
}

tern_status_t tern_cuda_check(CUresult result, const char *what, ...)
{
    const char *text = NULL, *name = NULL;
    char call[160];
    va_list args;

    if (result == CUDA_SUCCESS)
        return TERN_OK;
    va_start(args, what);
    vsnprintf(call, sizeof(call), what, args);
    va_end(args);
    tern_cuda.cuGetErrorString(result, &text);
    tern_cuda.cuGetErrorName(result, &name);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return tern_error(TERN_ERR_NO_MEMORY, "%s: %s; use less GPU memory in this and other processes", call,
                          text ? text : "out of memory");
    return tern_error(TERN_ERR_DEVICE, "%s: %s (%s)", call, text ? text : "unknown error", name ? name : "?");
}

void tern_cuda_note(CUresult result, const char *what)
{
    const char *text = NULL;

    if (result == CUDA_SUCCESS)
        return;
    tern_cuda.cuGetErrorString(result, &text);
    tern_log(TERN_LOG_WARN, "cannot %s: %s", what, text ? text : "unknown error");
}

tern_status_t tern_cuda_enter(struct tern_device *device, struct tern_cuda_scope *scope)
{
    tern_status_t status;

    scope->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    scope->pushed = false;
    status = tern_cuda_check(tern_cuda.cuCtxPushCurrent(device->context), "make the context of GPU %d current",
                             device->ordinal);
    if (status != TERN_OK)
        return status;
    scope->pushed = true;
    status = tern_cuda_check(tern_cuda.cuThreadExchangeStreamCaptureMode(&scope->mode),
                             "set the capture mode of the thread");
    if (status != TERN_OK) {
        CUcontext popped;

        tern_cuda.cuCtxPopCurrent(&popped);
        scope->pushed = false;
    }
    return status;
}

void tern_cuda_leave(struct tern_cuda_scope *scope)
{
    CUcontext popped;

    if (!scope->pushed)
        return;
    tern_cuda.cuThreadExchangeStreamCaptureMode(&scope->mode);
    tern_cuda.cuCtxPopCurrent(&popped);
    scope->pushed = false;
}

/* ---- MPS --------------------------------------------------------------------------------------------------------- */

/* A daemon listens at the control pipe: a UNIX socket, of whatever type, or a FIFO. */
static int control_pipe_listens(const char *path)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct stat st;
    int fd, rc;

    if (stat(path, &st) != 0)
        return 0;
    if (S_ISFIFO(st.st_mode)) {
        fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0)
            return 0;
        close(fd);
        return 1;
    }
    if (!S_ISSOCK(st.st_mode) || strlen(path) >= sizeof(addr.sun_path))
        return 0;
    strcpy(addr.sun_path, path);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return 0;
    rc = connect(fd, (struct sockaddr *)&addr, sizeof(addr));
    /* EPROTOTYPE, EAGAIN: somebody listens, though with another type or a full queue */
    rc = rc == 0 || errno == EPROTOTYPE || errno == EAGAIN;
    close(fd);
    return rc;
}

int tern_cuda_mps(CUdevice device)
{
    const char *dir = getenv("CUDA_MPS_PIPE_DIRECTORY");
    char path[4096];
    int enabled = 0;

    /* drivers since CUDA 12.x know; older ones refuse the attribute */
    if (tern_cuda.cuDeviceGetAttribute(&enabled, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, device) == CUDA_SUCCESS && enabled)
        return 1;
    snprintf(path, sizeof(path), "%s/control", dir && *dir ? dir : "/tmp/nvidia-mps");
    return control_pipe_listens(path);
}
