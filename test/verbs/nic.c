/* nic.c - the choice of RDMA device, port and GID on machines that test/fixtures/sysfs describes. */
#include "proxy/nic.h"

#include "common/sysfs.h"

static char root[256];

static struct tern_nic choose(const char *names, int gid, const char *near, int numa, int rank, tern_status_t want,
                              const char *text)
{
    const struct tern_nic_query query = {root, names, gid, near, numa, rank};
    struct tern_nic nic;
    tern_status_t status = tern_nic_choose(&query, &nic);

    CHECK(status == want, "'%s', near '%s', rank %d: %s", names, near, rank, tern_status_name(status));
    if (want != TERN_OK)
        CHECK(strstr(tern_last_error(), text) && strlen(tern_last_error()) > strlen(text), "'%s' tells '%s'",
              tern_last_error(), text);
    else
        CHECK(strcmp(nic.device, text) == 0, "'%s', near '%s', rank %d: %s (%s), not %s", names, near, rank, nic.device,
              nic.why, text);
    return nic;
}

static void test_dgx(void)
{
    char near[160], want[32];
    sysfs_unpack("dgx", root, sizeof root);
    for (int i = 0; i < 8; i++) {
        int bus = 0x10 * i + 0x10;
        snprintf(near, sizeof near, "devices/pci0000:%02x/0000:%02x:01.0/0000:%02x:00.0/0000:%02x:00.0/0000:%02x:00.0",
                 bus, bus, bus + 1, bus + 2, bus + 3);
        snprintf(want, sizeof want, "mlx5_%d", i);
        struct tern_nic nic = choose("", -1, near, -1, i, TERN_OK, want);
        CHECK(!nic.ethernet && nic.port == 1 && nic.gid_index == 0, "InfiniBand");
    }
    for (int rank = 0; rank < 8; rank++) { /* without a GPU: dealt out on the NUMA node */
        snprintf(want, sizeof want, "mlx5_%d", 4 + rank % 4);
        choose("", -1, "", 1, rank, TERN_OK, want);
    }
    choose("mlx5_3,mlx5_5", -1, "", -1, 3, TERN_OK, "mlx5_5");
    choose("mlx5_3:1", -1, "", -1, 7, TERN_OK, "mlx5_3");
    choose("mlx5_9", -1, "", -1, 0, TERN_ERR_CONFIG, "no RDMA device 'mlx5_9'");
    choose("mlx5_3:2", -1, "", -1, 0, TERN_ERR_CONFIG, "with a port 2");
    choose("mlx5_3:x", -1, "", -1, 0, TERN_ERR_CONFIG, "'mlx5_3:x' is no device");
    choose(",", -1, "", -1, 0, TERN_ERR_CONFIG, "'' is no device");
    choose("", 5, "", -1, 0, TERN_ERR_CONFIG, "TERN_GID_INDEX=5");
}

static void test_asymmetric(void)
{
    sysfs_unpack("asymmetric", root, sizeof root);
    choose("", -1, "devices/pci0000:10/0000:10:01.0/0000:11:00.0", -1, 5, TERN_OK, "mlx5_0");
    choose("", -1, "devices/pci0000:80/0000:80:01.0/0000:81:00.0", -1, 0, TERN_OK, "mlx5_2");
    choose("", -1, "", 0, 0, TERN_OK, "mlx5_0");
    choose("", -1, "", 0, 1, TERN_OK, "mlx5_1");
    choose("", -1, "", -1, 2, TERN_OK, "mlx5_2");
}

static void test_rails(void)
{
    sysfs_unpack("two-rails", root, sizeof root);
    for (int rank = 0; rank < 4; rank++) {
        struct tern_nic nic = choose("", -1, "", 0, rank, TERN_OK, rank % 2 ? "rxe1" : "rxe0");
        CHECK(nic.ethernet && nic.gid_index == 3, "RoCE v2 of IPv4, not GID %d", nic.gid_index);
    }
    CHECK(choose("", 1, "", 0, 0, TERN_OK, "rxe0").gid_index == 1, "as named");
    choose("", 2, "", 0, 0, TERN_ERR_CONFIG, "not of RoCE v2");
    choose("", 4, "", 0, 0, TERN_ERR_CONFIG, "no such GID");
}

static void test_down(void)
{
    const char *why;
    sysfs_unpack("down", root, sizeof root);
    choose("mlx5_0", -1, "", 0, 0, TERN_ERR_CONFIG, "is not active (1: DOWN)");
    choose("mlx5_1", -1, "", 0, 0, TERN_ERR_CONFIG, "is not active (2: INIT)");
    choose("", -1, "", 0, 0, TERN_ERR_UNREACHABLE, "no GID of RoCE v2");
    CHECK(tern_nic_any(root, &why), "port 2 is up: %s", why);
    sysfs_unpack("none", root, sizeof root);
    choose("", -1, "", 0, 0, TERN_ERR_UNREACHABLE, "no RDMA device with an active port");
    choose("mlx5_0", -1, "", 0, 0, TERN_ERR_CONFIG, "no RDMA device 'mlx5_0'");
    CHECK(!tern_nic_any(root, &why) && *why, "none");
}

int main(void)
{
    test_dgx();
    test_asymmetric();
    test_rails();
    test_down();
    return test_end("nic");
}
