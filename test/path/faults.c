/* faults.c - the parser of TERN_LOOPBACK_FAULTS: good strings give what they say, others name the part that is wrong.
 */
#include "common/check.h"
#include "proxy/loopback.h"

static struct loopback_faults f;
static char what[80];

static bool good(const char *text)
{
    return tern_loopback_parse(text, &f, what, sizeof what);
}

static void bad(const char *text, const char *part)
{
    CHECK(!good(text), "'%s' parses", text);
    CHECK(!strcmp(what, part), "'%s': '%s' is named, not '%s'", text, what, part);
}

int main(void)
{
    CHECK(good("") && !f.any, "nothing");
    CHECK(good("delay=10-200us,reorder=0.25,credits=4,seed=18446744073709551615") && f.any && f.delay_low_us == 10 &&
              f.delay_high_us == 200 && f.reorder == 0.25 && f.credits == 4 && f.seed == UINT64_MAX && !f.fail_at &&
              f.fail_pe == -1 && f.kill_pe == -1,
          "several");
    CHECK(good("fail=7,pe=3") && f.fail_at == 7 && f.fail_pe == 3, "fail");
    CHECK(good("kill=2@100") && f.kill_pe == 2 && f.kill_at == 100, "kill");
    CHECK(good("reorder=1") && f.reorder == 1 && good("reorder=0") && f.reorder == 0, "shares");
    bad("delay", "delay");
    bad("delay=", "delay=");
    bad("delay=5us", "delay=5us");
    bad("delay=9-5us", "delay=9-5us");
    bad("delay=1-2ms", "delay=1-2ms");
    bad("delay=1-2000000us", "delay=1-2000000us");
    bad("seed=1,reorder=1.5", "reorder=1.5");
    bad("reorder=-0.5", "reorder=-0.5");
    bad("reorder=nan", "reorder=nan");
    bad("credits=0", "credits=0");
    bad("credits=4 ", "credits=4 ");
    bad("fail=0", "fail=0");
    bad("fail=-1", "fail=-1");
    bad("kill=1", "kill=1");
    bad("kill=1@0", "kill=1@0");
    bad("kill=@5", "kill=@5");
    bad("seed=1,,fail=2", "");
    bad("seed=1,", "seed=1");
    bad("unknown=1", "unknown=1");
    bad("Delay=1-2us", "Delay=1-2us");
    return test_end("faults");
}
