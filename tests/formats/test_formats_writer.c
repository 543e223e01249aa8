/* The writer: what it writes is read back the same, byte by byte where the format says so, and a file
 * appears whole or not at all. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#include "formats/file.h"
#include "formats/readers/readers.h"
#include "mha/file.h"
#include "mha/random.h"
#include "support/failing.h"
#include "support/scratch.h"
#include "support/unit.h"

static mha_writer *create(const char *path)
{
    mha_error error;
    mha_writer *writer;
    assert_ok(mha_writer_create(path, &writer, &error), error);
    return writer;
}

static mha_file *open_file(const char *path)
{
    mha_error error;
    mha_file *file;
    assert_ok(mha_file_open(path, &file, &error), error);
    return file;
}

static float numbers[6] = {1.5f, -2, 3, 4, 5, 6};

static mha_view six(void)
{
    return mha_view_of(numbers, MHA_F32, 2, (size_t[]){2, 3});
}

/* Writes one tensor to `path`. */
static mha_status write_six(const char *path, mha_error *error)
{
    mha_writer *writer;
    mha_view view = six();
    mha_status status = mha_writer_create(path, &writer, error);
    if (status == MHA_OK)
        status = mha_writer_add(writer, "six", &view, error);
    if (status == MHA_OK)
        status = mha_writer_commit(writer, error);
    mha_writer_destroy(writer);
    return status;
}

static void the_bytes_of_safetensors_are_as_specified(void **state)
{
    (void)state;
    mha_error error;
    const char *path = scratch_path("bytes.safetensors");
    mha_writer *writer = create(path);
    uint8_t flags[3] = {1, 0, 1};
    int64_t big = -2;
    mha_view six_view = six(), flag_view = mha_view_of(flags, MHA_BOOL, 1, (size_t[]){3}),
             big_view = mha_view_of(&big, MHA_I64, 0, NULL);
    assert_ok(mha_writer_add(writer, "flags", &flag_view, &error), error);
    assert_ok(mha_writer_add(writer, "six", &six_view, &error), error);
    assert_ok(mha_writer_add(writer, "b\"ig", &big_view, &error), error);
    assert_ok(mha_writer_add_metadata(writer, "key", "va\nlue", &error), error);
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);

    /* Widest elements first, so that each tensor is aligned behind a header of a multiple of 8. */
    static const char header[] = "{\"__metadata__\":{\"key\":\"va\\nlue\"},"
                                 "\"b\\\"ig\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
                                 "\"six\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[8,32]},"
                                 "\"flags\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[32,35]}}";
    bytes expected = {0};
    bytes_number(&expected, (sizeof header - 1 + 7) / 8 * 8, 8);
    bytes_text(&expected, header);
    while (expected.count % 8)
        bytes_text(&expected, " ");
    bytes_number(&expected, (uint64_t)big, 8);
    for (int i = 0; i < 6; i++) {
        uint32_t bits;
        memcpy(&bits, &numbers[i], 4);
        bytes_number(&expected, bits, 4);
    }
    bytes_add(&expected, flags, 3);
    size_t count;
    unsigned char *found = scratch_read(path, &count);
    assert_int_equal(count, expected.count);
    assert_memory_equal(found, expected.data, count);
    free(found);
    bytes_free(&expected);
}

static void the_bytes_of_npy_are_as_specified(void **state)
{
    (void)state;
    static const struct {
        int rank;
        size_t shape[3];
        const char *text;
    } cases[] = {{0, {0}, "()"}, {1, {6}, "(6,)"}, {2, {2, 3}, "(2, 3)"}, {3, {3, 0, 2}, "(3, 0, 2)"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mha_error error;
        const char *path = scratch_path("bytes.npy");
        mha_writer *writer = create(path);
        mha_view view = mha_view_of(numbers, MHA_F32, cases[i].rank, cases[i].shape);
        assert_ok(mha_writer_add(writer, "any", &view, &error), error);
        assert_ok(mha_writer_commit(writer, &error), error);
        mha_writer_destroy(writer);
        size_t count, elements = mha_view_elements(&view);
        unsigned char *found = scratch_read(path, &count);
        char header[128];
        snprintf(header, sizeof header, "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }", cases[i].text);
        assert_int_equal(count, 128 + 4 * elements);
        assert_memory_equal(found, "\x93NUMPY\x01\x00\x76\x00", 10); /* 128 - 10 = 0x76 */
        assert_memory_equal(found + 10, header, strlen(header));
        assert_int_equal(found[127], '\n');
        for (size_t k = 10 + strlen(header); k < 127; k++)
            assert_int_equal(found[k], ' ');
        assert_memory_equal(found + 128, numbers, 4 * elements); /* on a little-endian machine */
        free(found);
    }
}

/* Every plain dtype of a format, contiguous and strided, of several ranks. */
static void what_is_written_is_read_back(void **state)
{
    const char *extension = *state;
    bool npy = strcmp(extension, "npy") == 0;
    enum { MOST = 300 * 301, WIDEST = 8 };
    unsigned char *memory = malloc(2 * WIDEST * MOST), *again = calloc(WIDEST, MOST);
    for (size_t i = 0; i < 2 * WIDEST * MOST; i++)
        memory[i] = (unsigned char)(mha__random_bits(7, 0, i / 8) >> i % 8 * 8);
    for (int d = 0; d < MHA_DTYPE_COUNT; d++) {
        mha_dtype dtype = (mha_dtype)d;
        size_t width;
        if (mha_dtype_bytes(dtype, 1, &width, NULL) != MHA_OK)
            continue;
        if (npy ? !mha__npy_descr(dtype) : !mha__safetensors_has(dtype))
            continue;
        for (int rank = 0; rank <= 4; rank++)
            for (int strided = 0; strided < 2; strided++) {
                static const size_t shapes[5][4] = {{0}, {70000}, {300, 301}, {5, 1, 7}, {2, 3, 4, 5}};
                mha_view view = mha_view_of(memory, dtype, rank, shapes[rank]);
                if (strided && rank > 0) { /* axes reversed, every second element */
                    ptrdiff_t stride = 2;
                    for (int k = 0; k < rank; k++) {
                        view.stride[k] = stride;
                        stride *= (ptrdiff_t)view.shape[k];
                    }
                }
                char name[64];
                snprintf(name, sizeof name, "round.%s", extension);
                const char *path = scratch_path(name);
                mha_error error;
                mha_writer *writer = create(path);
                assert_ok(mha_writer_add(writer, "t", &view, &error), error);
                assert_ok(mha_writer_commit(writer, &error), error);
                mha_writer_destroy(writer);

                mha_file *file = open_file(path);
                assert_string_equal(mha_file_format(file), npy ? "npy" : "safetensors");
                const mha_file_tensor *tensor = mha_file_find(file, npy ? "" : "t");
                assert_int_equal(tensor->dtype, dtype);
                assert_int_equal(tensor->rank, rank);
                assert_memory_equal(tensor->shape, view.shape, (size_t)rank * sizeof(size_t));
                mha_view back = mha_view_of(again, dtype, rank, shapes[rank]);
                assert_ok(mha_file_read(file, tensor, &back, &error), error);
                size_t index[4] = {0};
                for (size_t e = 0; e < mha_view_elements(&view); e++) {
                    ptrdiff_t at = 0;
                    for (int k = 0; k < rank; k++)
                        at += (ptrdiff_t)index[k] * view.stride[k];
                    assert_memory_equal(again + e * width, memory + at * (ptrdiff_t)width, width);
                    for (int k = rank - 1; k >= 0 && ++index[k] == view.shape[k]; k--)
                        index[k] = 0;
                }
                mha_file_close(file);
            }
    }
    free(memory);
    free(again);
}

static void packed_elements_are_written_as_they_are(void **state)
{
    (void)state;
    mha_error error;
    unsigned char packed[6] = {1, 2, 3, 4, 5, 6};
    mha_view view = mha_view_of(packed, MHA_F6_E2M3, 1, (size_t[]){8});
    const char *path = scratch_path("packed.safetensors");
    mha_writer *writer = create(path);
    assert_ok(mha_writer_add(writer, "t", &view, &error), error);
    mha_view holes = mha_view_of(packed, MHA_F4, 2, (size_t[]){2, 2});
    holes.stride[0] = 4;
    assert_refused(mha_writer_add(writer, "u", &holes, &error), MHA_INVALID, error, "u: ", "contiguous");
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    size_t count;
    unsigned char *found = scratch_read(path, &count);
    assert_memory_equal(found + count - 6, packed, 6);
    free(found);
    mha_file *file = open_file(path);
    assert_int_equal(mha_file_at(file, 0)->elements, 8);
    float wide[8];
    mha_view to = mha_view_of(wide, MHA_F32, 1, (size_t[]){8});
    assert_refused(mha_file_read(file, mha_file_at(file, 0), &to, &error), MHA_UNSUPPORTED, error, "F6_E2M3", path);
    mha_file_close(file);
}

static void what_cannot_be_written_is_refused(void **state)
{
    (void)state;
    mha_error error;
    mha_writer *writer;
    assert_refused(mha_writer_create(scratch_path("file.txt"), &writer, &error), MHA_INVALID, error,
                   "file.txt: ", ".safetensors");
    assert_null(writer);
    assert_refused(mha_writer_create(".npy", &writer, &error), MHA_INVALID, error, ".safetensors");
    const char *directory = scratch_path("directory.npy");
    mkdir(directory, 0700);
    assert_refused(mha_writer_create(directory, &writer, &error), MHA_INVALID, error, "found a directory");
    assert_refused(mha_writer_create(scratch_path("none/file.npy"), &writer, &error), MHA_IO, error, "No such file");
    assert_refused(mha_writer_create("/dev/null/file.npy", &writer, &error), MHA_IO, error, "Not a directory");

    writer = create(scratch_path("refuse.safetensors"));
    mha_view view = six(), empty = {.dtype = MHA_F32, .rank = 1, .shape = {2}};
    assert_refused(mha_writer_add(writer, "", &view, &error), MHA_INVALID, error, "name", "refuse.safetensors: ");
    assert_refused(mha_writer_add(writer, NULL, &view, &error), MHA_INVALID, error, "name");
    assert_refused(mha_writer_add(writer, "__metadata__", &view, &error), MHA_INVALID, error, "another name");
    assert_refused(mha_writer_add(writer, "\xff", &view, &error), MHA_INVALID, error, "UTF-8");
    assert_refused(mha_writer_add(writer, "a", &empty, &error), MHA_INVALID, error, "a: expected data");
    mha_view huge = {.data = numbers, .dtype = MHA_F32, .rank = 2, .shape = {SIZE_MAX / 2, 16}};
    assert_refused(mha_writer_add(writer, "a", &huge, &error), MHA_INVALID, error, "bytes can be counted");
    mha_view odd = {.data = numbers, .dtype = MHA_F32, .rank = 2, .shape = {SIZE_MAX, 0}};
    assert_refused(mha_writer_add(writer, "a", &odd, &error), MHA_INVALID, error, "2^63");
    mha_view deep = {.data = numbers, .dtype = MHA_F32, .rank = 99};
    assert_refused(mha_writer_add(writer, "a", &deep, &error), MHA_INVALID, error, "found 99");
    mha_view quantised = mha_view_of(numbers, MHA_Q8_0, 1, (size_t[]){0});
    assert_refused(mha_writer_add(writer, "a", &quantised, &error), MHA_UNSUPPORTED, error, "Q8_0");
    assert_ok(mha_writer_add(writer, "a", &view, &error), error);
    assert_refused(mha_writer_add(writer, "a", &view, &error), MHA_INVALID, error, "a: ", "twice");
    assert_ok(mha_writer_add_metadata(writer, "k", "v", &error), error);
    assert_refused(mha_writer_add_metadata(writer, "k", "w", &error), MHA_INVALID, error, "k: ", "twice");
    assert_refused(mha_writer_add_metadata(writer, "l", "\xc3", &error), MHA_INVALID, error, "UTF-8");
    mha_writer_destroy(writer);
    mha_writer_destroy(NULL);

    writer = create(scratch_path("refuse.npy"));
    assert_refused(mha_writer_commit(writer, &error), MHA_INVALID, error, "found none");
    mha_view half = mha_view_of(numbers, MHA_BF16, 1, (size_t[]){2});
    assert_refused(mha_writer_add(writer, "a", &half, &error), MHA_UNSUPPORTED, error, "BF16", "npy");
    assert_refused(mha_writer_add_metadata(writer, "k", "v", &error), MHA_UNSUPPORTED, error, "npy");
    assert_ok(mha_writer_add(writer, "a", &view, &error), error);
    assert_refused(mha_writer_add(writer, "b", &view, &error), MHA_INVALID, error, "a second");
    mha_writer_destroy(writer);
}

static void a_file_that_was_there_is_replaced_and_keeps_its_permissions(void **state)
{
    (void)state;
    mha_error error;
    const char *path = scratch_write("old.npy", "old", 3), *link = scratch_path("link.npy");
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(symlink("old.npy", link), 0);
    assert_ok(write_six(link, &error), error);
    struct stat status;
    assert_int_equal(lstat(link, &status), 0);
    assert_true(S_ISLNK(status.st_mode));
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0640);
    assert_int_equal(status.st_size, 128 + 24);

    /* a chain of links whose end is not there yet, in another directory than the first link */
    char file[600], first[600];
    snprintf(file, sizeof file, "%s", scratch_path("end.npy"));
    snprintf(first, sizeof first, "%s", scratch_path("links/first.npy"));
    assert_int_equal(mkdir(scratch_path("links"), 0700), 0);
    assert_int_equal(symlink("../second.npy", first), 0);
    assert_int_equal(symlink(file, scratch_path("second.npy")), 0);
    assert_int_equal(chmod(scratch_path("links"), 0500), 0); /* nothing is written there */
    assert_ok(write_six(first, &error), error);
    assert_int_equal(chmod(scratch_path("links"), 0700), 0);
    assert_int_equal(lstat(first, &status), 0);
    assert_true(S_ISLNK(status.st_mode));
    assert_int_equal(lstat(scratch_path("second.npy"), &status), 0);
    assert_true(S_ISLNK(status.st_mode));
    assert_int_equal(lstat(file, &status), 0);
    assert_true(S_ISREG(status.st_mode) && status.st_size == 128 + 24);
    assert_int_equal(unlink(first), 0);
    assert_int_equal(symlink("nowhere/end.npy", first), 0);
    assert_refused(write_six(first, &error), MHA_IO, error, "first.npy: cannot write into its directory: No such file");
    assert_int_equal(lstat(first, &status), 0);
    assert_true(S_ISLNK(status.st_mode));

    /* what cannot be followed: a link to itself; one that says more than a path can, from deep down */
    assert_int_equal(symlink("loop.npy", scratch_path("loop.npy")), 0);
    assert_refused(write_six(scratch_path("loop.npy"), &error), MHA_IO, error,
                   "loop.npy: cannot write it: Too many levels");
    char deep[3200], far[2000], component[201];
    memset(component, 'd', 200);
    component[200] = '\0';
    snprintf(deep, sizeof deep, "%s", scratch_path("deep"));
    for (size_t i = 0; i < 14; i++) {
        assert_int_equal(mkdir(deep, 0700), 0);
        snprintf(deep + strlen(deep), sizeof deep - strlen(deep), "/%s", component);
    }
    assert_int_equal(mkdir(deep, 0700), 0);
    snprintf(deep + strlen(deep), sizeof deep - strlen(deep), "/far.npy");
    for (size_t i = 0; i + 1 < sizeof far; i++)
        far[i] = i % 100 ? 'f' : '/';
    memcpy(far, "none", 4);
    far[sizeof far - 1] = '\0';
    assert_int_equal(symlink(far, deep), 0);
    assert_refused(write_six(deep, &error), MHA_IO, error, "cannot write it: File name too long");

    mode_t mask = umask(027);
    assert_ok(write_six(scratch_path("new.npy"), &error), error);
    umask(mask);
    assert_int_equal(stat(scratch_path("new.npy"), &status), 0);
    assert_int_equal(status.st_mode & 07777, 0640);
}

/* The old file stays, and no other file remains. */
static void a_failed_write_leaves_no_trace(void **state)
{
    (void)state;
    mha_error error;
    const char *path = scratch_write("kept.safetensors", "kept", 4);
    size_t files = scratch_count_files();
    struct rlimit old, small = {64, 64};
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN); /* the write then fails with EFBIG */
    setrlimit(RLIMIT_FSIZE, &small);
    mha_status status = write_six(path, &error);
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, handler);
    assert_refused(status, MHA_IO, error, "kept.safetensors: ", "File too large");
    assert_int_equal(scratch_count_files(), files);
    size_t count;
    unsigned char *found = scratch_read(path, &count);
    assert_int_equal(count, 4);
    assert_memory_equal(found, "kept", 4);
    free(found);

    /* Destroyed without commit: never was. */
    mha_writer *writer = create(scratch_path("never.npy"));
    mha_writer_destroy(writer);
    assert_int_equal(scratch_count_files(), files);
}

/* A process that is ended in the middle of writing leaves nothing behind where files without a name are known, here by
 * the signal for a file that grows too large. */
static void a_process_that_is_ended_leaves_no_file(void **state)
{
    (void)state;
    const char *path = scratch_write("kept.npy", "kept", 4);
    const int nameless = open(scratch_path(""), O_TMPFILE | O_WRONLY, 0600);
    if (nameless < 0) {
        print_message("this file system has no files without a name\n");
        return;
    }
    close(nameless);
    const size_t files = scratch_count_files();
    const pid_t child = fork();
    if (child == 0) {
        mha_error error;
        const struct rlimit none = {0, 0}, small = {64, 64};
        signal(SIGXFSZ, SIG_DFL);
        setrlimit(RLIMIT_CORE, &none);
        setrlimit(RLIMIT_FSIZE, &small);
        (void)write_six(path, &error);
        _exit(0);
    }
    int status = 0;
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ);
    assert_int_equal(scratch_count_files(), files);
}

/* Nor does SIGKILL while it writes one new file after the other, at any moment. */
static void a_killed_process_leaves_whole_files_only(void **state)
{
    (void)state;
    const int nameless = open(scratch_path(""), O_TMPFILE | O_WRONLY, 0600);
    if (nameless < 0) {
        print_message("this file system has no files without a name\n");
        return;
    }
    close(nameless);
    for (int i = 0; i < 60; i++) {
        const pid_t child = fork();
        for (int n = 0; child == 0 && n >= 0; n++) {
            char name[40];
            mha_error error;
            snprintf(name, sizeof name, "new-%d-%d.npy", i, n % 1000);
            unlink(scratch_path(name));
            (void)write_six(scratch_path(name), &error);
        }
        assert_true(child > 0);
        usleep((useconds_t)(1000 + mha__random_bits(1, 1, (uint64_t)i) % 4000));
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
    }
    DIR *folder = opendir(scratch_path(""));
    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder));)
        assert_null(strstr(entry->d_name, ".tmp"));
    closedir(folder);
}

/* A process that may open nothing more is told so, whether the new file would have a name or not. */
static void without_a_free_descriptor_nothing_is_opened(void **state)
{
    (void)state;
    mha_error error = {0};
    struct rlimit old, none;
    const char *path = scratch_path("one_too_many.npy");
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = (struct rlimit){0, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    mha_status status = write_six(path, &error);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_refused(status, MHA_IO, error, "one_too_many.npy: cannot write into its directory: Too many open files");
    assert_int_equal(access(path, F_OK), -1);
}

static void read_only_places_are_refused(void **state)
{
    (void)state;
    mha_error error = {0}, error_in_directory = {0};
    const char *path = scratch_write("locked.npy", "kept", 4), *directory = scratch_path("locked");
    chmod(scratch_path(""), 0777);
    chmod(path, 0444);
    mkdir(directory, 0555);
    uid_t user = geteuid();
    if (user == 0)
        assert_int_equal(seteuid(65534), 0); /* root may write everywhere: be somebody else */
    mha_status status = write_six(path, &error),
               in_directory = write_six(scratch_path("locked/a.npy"), &error_in_directory);
    assert_int_equal(seteuid(user), 0);
    assert_refused(status, MHA_IO, error, "Permission denied");
    assert_refused(in_directory, MHA_IO, error_in_directory, "directory", "Permission denied");
}

static void devices_and_pipes_are_written_directly(void **state)
{
    (void)state;
    mha_error error;
    assert_refused(write_six("/dev/full", &error), MHA_IO, error, "/dev/full: ", "No space left");
    assert_ok(write_six("/dev/null", &error), error);
    struct stat status;
    assert_int_equal(stat("/dev/null", &status), 0);
    assert_true(S_ISCHR(status.st_mode));

    /* A FIFO with an extension, read by another descriptor. */
    const char *fifo = scratch_path("fifo.npy");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    int reader = open(fifo, O_RDONLY | O_NONBLOCK);
    assert_ok(write_six(fifo, &error), error);
    unsigned char got[256];
    assert_int_equal(read(reader, got, sizeof got), 128 + 24);
    assert_memory_equal(got, "\x93NUMPY", 6);
    close(reader);

    /* Standard output. */
    fflush(stdout);
    int kept = dup(STDOUT_FILENO), file = open(scratch_path("stdout"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    dup2(file, STDOUT_FILENO);
    mha_status written = write_six("-", &error);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    close(file);
    assert_int_equal(written, MHA_OK);
    mha_file *back = open_file(scratch_path("stdout"));
    assert_string_equal(mha_file_format(back), "safetensors");
    assert_non_null(mha_file_find(back, "six"));
    mha_file_close(back);
}

static void every_failing_allocation_is_survived(void **state)
{
    (void)state;
    failing memory = {0};
    mha_allocator allocator = failing_allocator(&memory);
    mha_view view = six();
    size_t points = 0;
    for (bool done = false; !done; points++) {
        memory.calls = 0;
        memory.fail_at = points + 1;
        mha_writer *writer = NULL;
        mha_error error = {0};
        const char *path = scratch_path("memory.safetensors");
        unlink(path);
        mha_status status = mha__writer_create_using(&allocator, path, &writer, &error);
        if (status == MHA_OK)
            status = mha_writer_add(writer, "six", &view, &error);
        if (status == MHA_OK)
            status = mha_writer_commit(writer, &error);
        done = status == MHA_OK;
        if (!done) {
            assert_refused(status, MHA_NO_MEMORY, error, "no memory", "memory.safetensors: ");
            assert_int_equal(access(path, F_OK), -1);
        }
        mha_writer_destroy(writer);
        assert_int_equal(memory.live_blocks, 0);
        assert_int_equal(memory.bugs, 0);
    }
    assert_true(points > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bytes_of_safetensors_are_as_specified),
        cmocka_unit_test(the_bytes_of_npy_are_as_specified),
        cmocka_unit_test_prestate(what_is_written_is_read_back, (void *)(uintptr_t) "npy"),
        cmocka_unit_test_prestate(what_is_written_is_read_back, (void *)(uintptr_t) "safetensors"),
        cmocka_unit_test(packed_elements_are_written_as_they_are),
        cmocka_unit_test(what_cannot_be_written_is_refused),
        cmocka_unit_test(a_file_that_was_there_is_replaced_and_keeps_its_permissions),
        cmocka_unit_test(a_failed_write_leaves_no_trace),
        cmocka_unit_test(a_process_that_is_ended_leaves_no_file),
        cmocka_unit_test(a_killed_process_leaves_whole_files_only),
        cmocka_unit_test(without_a_free_descriptor_nothing_is_opened),
        cmocka_unit_test(read_only_places_are_refused),
        cmocka_unit_test(devices_and_pipes_are_written_directly),
        cmocka_unit_test(every_failing_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
