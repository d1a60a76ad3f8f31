/*
 * engine_rate.c - entries that engine threads decode in a second on the null transport: 8 B puts and words. Whoever
 * drives a thread of the proxy also fills its rings, and only the engine's own CPU time counts, so that the figure
 * means something on few cores; what it leaves out is the way of the entries from another core. Prints; asserts that
 * all were decoded.
 */
#include <pthread.h>

#include "proxy/engine_rig.h"

#define ROUNDS 300
#define MOST 4

struct driver {
    struct rig *rig;
    int thread;
    bool word;
    double rate; /* M entries a second */
};

static double seconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* Fill all rings of the thread, let it take them, again and again. */
static void *drive(void *arg)
{
    struct driver *d = arg;
    struct tern_proxy_thread *t = &d->rig->px->thread[d->thread];
    uint64_t number = t->number, random = (uint64_t)d->thread + 7, pushed = 0;
    int channels = d->rig->px->channels, each = channels > 8 ? 250 : 1000;
    double spent = 0;

    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < each * channels; i++, pushed++) {
            uint64_t offset = test_random(&random) % (RIG_SPAN / 32) * 16;
            if (d->word)
                rig_word(d->rig, i % channels, d->thread, offset, random);
            else
                rig_put(d->rig, i % channels, d->thread, offset, 8);
        }
        double begin = seconds();
        while (t->number - number < pushed)
            tern_engine_turn(t);
        spent += seconds() - begin;
    }
    CHECK(t->number - number == pushed && !t->all_first && t->checksum, "all are taken, decoded and complete");
    d->rate = (double)pushed / spent * 1e-6;
    return NULL;
}

static void measure(int threads, int channels, bool word)
{
    struct rig rig;
    struct driver drivers[MOST];
    pthread_t ids[MOST];
    double sum = 0;

    rig_open(&rig, &(struct rig_config){.n_pes = 4, .threads = threads, .channels = channels});
    for (int i = 0; i < threads; i++) {
        drivers[i] = (struct driver){&rig, i, word, 0};
        REQUIRE(!pthread_create(&ids[i], NULL, drive, &drivers[i]), "thread");
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        sum += drivers[i].rate;
    }
    printf("%s of 8 B, %d threads, %d channels: %.1f M entries/s\n", word ? "words" : "puts", threads, channels, sum);
    rig_close(&rig);
}

int main(void)
{
    static const int channels[] = {1, 8, 32};
    for (int i = 0; i < 3; i++) {
        measure(1, channels[i], false);
        measure(1, channels[i], true);
    }
    measure(2, 32, false);
    measure(4, 32, false);
    return test_end("engine_rate");
}
