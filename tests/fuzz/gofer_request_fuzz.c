/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile sentry: a series of requests to a gofer's server, which has a read-only and a writable attach
 * point. Input: u8 kind, u16 size, `size` bytes of fields, and again. Handle 1 << 32 | 1 is the read-only
 * root, 1 << 32 | 2 the writable one. Whatever is asked, nothing outside may be read, opened or changed.
 */
#include "base/log.h"
#include "tests/unit/gofer_fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static struct tree g_tree;
static struct gofer_attach g_attaches[2];
static char g_writable[96];

static void clean_up(void)
{
    tree_remove(&g_tree);
}

static void prepare(void)
{
    if (g_tree.top[0])
        return;
    tree_make(&g_tree);
    atexit(clean_up);
    snprintf(g_writable, sizeof(g_writable), "%s/writable", g_tree.top);
    mkdir(g_writable, 0755);
    g_attaches[0] = tree_attach(&g_tree);
    g_attaches[0].read_only = true;
    struct stat st;
    stat(g_writable, &st);
    g_attaches[1] = (struct gofer_attach){.path = g_writable, .dev = st.st_dev, .ino = st.st_ino};
}

static int remove_beneath(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    if (ftw->level > 0)
        remove(path);
    return 0;
}

/* What was donated is a regular file, and not the one outside. */
static void check_descriptor(int hfd)
{
    struct stat st;
    char content[8] = "";
    ASSERT(fstat(hfd, &st) == 0 && S_ISREG(st.st_mode));
    ASSERT(!(st.st_mode & (S_ISUID | S_ISGID)));
    ASSERT(pread(hfd, content, 5, 0) >= -1 && strcmp(content, "TOKEN") != 0);
    close(hfd);
}

static void check_outside(void)
{
    struct stat st;
    char path[4200];
    tree_path(&g_tree, "../secret", path);
    ASSERT(lstat(path, &st) == 0 && st.st_size == 5 && (st.st_mode & 07777) == 0644 && st.st_nlink == 1);
    tree_path(&g_tree, "hello", path);
    ASSERT(lstat(path, &st) == 0 && st.st_size == 12 && st.st_nlink == 1);
}

static bool run_one(struct gofer_server *server, uint8_t kind, const uint8_t *fields, size_t size)
{
    bool malformed;
    int hfd = -1;
    gofer_put_header(g_request, &(struct gofer_header){.kind = kind % (GOFER_KIND_COUNT + 1),
                                                       .size = (uint32_t)size});
    memcpy(g_request + GOFER_REQUEST_HEADER, fields, size);
    int64_t result = gofer_server_handle(server, g_request, GOFER_REQUEST_HEADER + size, g_reply,
                                         sizeof(g_reply), &hfd, &malformed);
    ASSERT(result <= (int64_t)sizeof(g_reply));
    ASSERT(hfd < 0 || result >= 0);
    if (hfd >= 0)
        check_descriptor(hfd);
    return !malformed;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    prepare();
    struct gofer_server *server = server_on(g_attaches, 2, NULL, 0);
    ASSERT(root_handle(server, 0) == (UINT64_C(1) << 32 | 1));
    ASSERT(root_handle(server, 1) == (UINT64_C(1) << 32 | 2));
    for (int i = 0; size >= 3 && i < 64; i++) {
        uint8_t kind = bytes[0];
        size_t fields = (size_t)bytes[1] | (size_t)bytes[2] << 8;
        bytes += 3;
        size -= 3;
        if (fields > size)
            fields = size;
        if (!run_one(server, kind, bytes, fields))
            break; /* the gofer would have ended */
        bytes += fields;
        size -= fields;
    }
    gofer_server_free(server);
    check_outside();
    nftw(g_writable, remove_beneath, 16, FTW_DEPTH | FTW_PHYS);
    return 0;
}
