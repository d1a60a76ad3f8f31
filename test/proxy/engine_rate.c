/*
 * engine_rate.c - entries that engine threads decode in a second on the null transport: 8 B puts, fed by the same core
 * that decodes them where there are few, so that the figure is the engine's own time. Prints; asserts that all were
 * decoded.
 */
#include "proxy/engine_rig.h"

static double seconds(clockid_t clock)
{
    struct timespec ts;
    clock_gettime(clock, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* Fill all rings, let the engine take them, and count its time only. */
static void rate(struct rig *rig, const char *what, int entries_of, bool word)
{
    uint64_t number = rig->t->number, random = 7, pushed = 0;
    double spent = 0;

    for (int round = 0; round < 400; round++) {
        for (int c = 0; c < rig->px->channels; c++) {
            for (int i = 0; i < entries_of; i++, pushed++) {
                uint64_t offset = test_random(&random) % (RIG_SPAN / 16) * 16 / 2 & ~15ull;
                if (word)
                    rig_word(rig, c, 0, offset, random);
                else
                    rig_put(rig, c, 0, offset, 8);
            }
        }
        double begin = seconds(CLOCK_MONOTONIC);
        while (rig->t->number - number < pushed)
            tern_engine_turn(rig->t);
        spent += seconds(CLOCK_MONOTONIC) - begin;
    }
    rig_settle(rig);
    CHECK(rig->t->number - number == pushed && !rig_incomplete(rig), "all are taken and complete");
    printf("%s, %d channels: %.1f M entries/s\n", what, rig->px->channels, (double)pushed / spent * 1e-6);
}

int main(void)
{
    static const int channels[] = {1, 8, 32};
    for (int i = 0; i < 3; i++) {
        struct rig rig;
        rig_open(&rig, &(struct rig_config){.n_pes = 4, .threads = 1, .channels = channels[i]});
        rate(&rig, "puts of 8 B", 1000 / (channels[i] > 8 ? 4 : 1), false);
        rate(&rig, "words of 8 B", 1000 / (channels[i] > 8 ? 4 : 1), true);
        CHECK(rig.t->checksum, "everything was decoded");
        rig_close(&rig);
    }
    return test_end("engine_rate");
}
