/*
 * cores.c - the cores that proxy threads have: are there enough for them to spin, and which one is whose.
 *
 * PEs of one host whose sets of allowed CPUs are equal share them; a launcher that binds gives each PE a set of its own. A
 * host may be several nodes: containers.
 */
#include <sched.h>
#include <stdlib.h>

#include "proxy/engine.h"

struct cores {
    uint64_t count, hash, boot;
};

static struct cores cores_mine(const struct tern_rt *rt, cpu_set_t *set)
{
    struct cores cores = {1, 0, rt->blob.boot};

    CPU_ZERO(set);
    if (sched_getaffinity(0, sizeof *set, set) != 0)
        return cores;
    cores.count = (uint64_t)CPU_COUNT(set);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, set))
            cores.hash = (cores.hash ^ (uint64_t)cpu) * 0x100000001b3ull + 1;
    }
    return cores;
}

static int cores_last(const cpu_set_t *set)
{
    int cpu = CPU_SETSIZE - 1;
    while (cpu >= 0 && !CPU_ISSET(cpu, set))
        cpu--;
    return cpu;
}

/*
 * A thread is bound to a core only where the launcher has bound the PE and left it more cores than it has threads: else
 * the core's other users would not know.
 */
tern_status_t tern_proxy_cores(struct tern_proxy *px)
{
    struct tern_rt *rt = px->rt;
    struct cores *all = calloc((size_t)rt->n_pes, sizeof *all);
    cpu_set_t set;
    struct cores mine = cores_mine(rt, &set);
    tern_status_t status = all ? TERN_OK : tern_error(TERN_ERR_NO_MEMORY, "no host memory for the proxy; free some");
    uint64_t sharers = 0, threads;

    px->pin_first = -1;
    status = tern_agree_status(rt, NULL, status);
    if (status == TERN_OK)
        status = tern_control_allgather(rt, NULL, &mine, sizeof mine, all);
    for (int pe = 0; status == TERN_OK && pe < rt->n_pes; pe++)
        sharers += all[pe].hash == mine.hash && all[pe].boot == mine.boot;
    free(all);
    threads = (uint64_t)px->threads + 1;
    px->few_cores = mine.count < sharers * threads;
    if (sharers == 1 && rt->node_n_pes > 1 && mine.count > threads)
        px->pin_first = cores_last(&set);
    return status;
}

void tern_proxy_pin(struct tern_proxy_thread *t)
{
    cpu_set_t set, own;
    int cpu = t->px->pin_first;

    if (cpu < 0 || sched_getaffinity(0, sizeof set, &set) != 0)
        return;
    for (int left = t->index; left > 0 && cpu > 0;)
        left -= CPU_ISSET(--cpu, &set) != 0;
    CPU_ZERO(&own);
    CPU_SET(cpu, &own);
    if (CPU_ISSET(cpu, &set) && pthread_setaffinity_np(pthread_self(), sizeof own, &own) != 0)
        tern_log(TERN_LOG_INFO, "proxy thread %d could not be bound to CPU %d", t->index, cpu);
}
