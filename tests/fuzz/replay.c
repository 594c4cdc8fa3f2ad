/* Runs a fuzz target on the files of a directory: the corpus as an ordinary
 * test. Each file is also cut at every length, and each of its bytes is
 * changed. The memory ends with the input, so that sanitizers detect reads
 * beyond it. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INPUT_BYTES_MAX 65536
#define PATH_BYTES 4096

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void run_copy(const uint8_t *bytes, size_t size, size_t changed)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);

    if (copy == NULL)
        abort();
    memcpy(copy, bytes, size);
    if (changed < size)
        copy[changed] ^= (uint8_t)(1 + changed % 255);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void run_input(const uint8_t *bytes, size_t size)
{
    for (size_t cut = 0; cut <= size; cut++)
        run_copy(bytes, cut, size);
    for (size_t changed = 0; changed < size; changed++)
        run_copy(bytes, size, changed);
}

static int run_file(const char *directory, const char *name)
{
    static uint8_t bytes[INPUT_BYTES_MAX];
    char path[PATH_BYTES];
    FILE *file;
    size_t size;

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        return 1;
    }
    size = fread(bytes, 1, sizeof(bytes), file);
    fclose(file);
    run_input(bytes, size);
    return 0;
}

int main(int argc, char **argv)
{
    size_t files = 0;
    struct dirent *entry;
    int failed = 0;
    DIR *directory;

    directory = argc == 2 ? opendir(argv[1]) : NULL;
    if (directory == NULL) {
        fprintf(stderr, "usage: %s DIRECTORY (that can be read)\n", argv[0]);
        return EXIT_FAILURE;
    }
    while ((entry = readdir(directory)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        failed += run_file(argv[1], entry->d_name);
        files++;
    }
    closedir(directory);
    printf("%zu inputs\n", files);
    return failed == 0 && files > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
