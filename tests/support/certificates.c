/* Certificates by OpenSSL's library, which takes 1 ms for each. */
#include "support/certificates.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include "support/testing.h"

enum { DAY_S = 24 * 3600 };

const char *certificates_path(const char *dir, const char *file)
{
    static char text[16][CERTIFICATES_PATH_BYTES];
    static unsigned next;
    char *at = text[next++ % 16];

    ck_assert_int_lt(snprintf(at, CERTIFICATES_PATH_BYTES, "%s/%s", dir, file),
                     CERTIFICATES_PATH_BYTES);
    return at;
}

static FILE *open_file(const char *dir, const char *name, const char *suffix,
                       const char *mode)
{
    char file[CERTIFICATES_PATH_BYTES];
    FILE *opened;

    snprintf(file, sizeof(file), "%s%s", name, suffix);
    opened = fopen(certificates_path(dir, file), mode);
    ck_assert_msg(opened != NULL, "%s/%s", dir, file);
    return opened;
}

static void write_files(const char *dir, const char *name, X509 *x509,
                        EVP_PKEY *key)
{
    FILE *pem = open_file(dir, name, ".pem", "w");
    FILE *secret = open_file(dir, name, ".key", "w");

    ck_assert_int_eq(PEM_write_X509(pem, x509), 1);
    ck_assert_int_eq(
        PEM_write_PrivateKey(secret, key, NULL, NULL, 0, NULL, NULL), 1);
    ck_assert_int_eq(fclose(pem), 0);
    ck_assert_int_eq(fclose(secret), 0);
}

static void add_extension(X509 *x509, int nid, const char *value)
{
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, nid, value);

    ck_assert_ptr_nonnull(extension);
    ck_assert_int_eq(X509_add_ext(x509, extension, -1), 1);
    X509_EXTENSION_free(extension);
}

static void set_name(X509 *x509, const char *name)
{
    X509_NAME *own = X509_get_subject_name(x509);

    ck_assert_int_eq(X509_NAME_add_entry_by_txt(own, "CN", MBSTRING_ASC,
                                                (const unsigned char *)name, -1,
                                                -1, 0),
                     1);
}

static X509 *begin(const struct certificate *wanted, EVP_PKEY *key)
{
    X509 *x509 = X509_new();
    long serial;

    ck_assert_ptr_nonnull(x509);
    ck_assert_int_eq(RAND_bytes((unsigned char *)&serial, sizeof(serial)), 1);
    ck_assert_int_eq(X509_set_version(x509, X509_VERSION_3), 1);
    ck_assert_int_eq(
        ASN1_INTEGER_set(X509_get_serialNumber(x509), serial & INT32_MAX), 1);
    X509_gmtime_adj(X509_getm_notBefore(x509), -DAY_S);
    X509_gmtime_adj(X509_getm_notAfter(x509),
                    (long)(wanted->days - 1) * DAY_S - 1);
    set_name(x509, wanted->name);
    ck_assert_int_eq(X509_set_pubkey(x509, key), 1);
    if (wanted->hosts == NULL)
        add_extension(x509, NID_basic_constraints, "critical,CA:TRUE");
    else
        add_extension(x509, NID_subject_alt_name, wanted->hosts);
    return x509;
}

void certificate_make(const char *dir, const struct certificate *wanted)
{
    EVP_PKEY *key = EVP_EC_gen("P-256"), *signs = key;
    X509 *x509 = begin(wanted, key), *issuer = x509;

    if (wanted->issuer != NULL) {
        FILE *pem = open_file(dir, wanted->issuer, ".pem", "r");
        FILE *secret = open_file(dir, wanted->issuer, ".key", "r");
        issuer = PEM_read_X509(pem, NULL, NULL, NULL);
        signs = PEM_read_PrivateKey(secret, NULL, NULL, NULL);
        ck_assert(issuer != NULL && signs != NULL);
        fclose(pem);
        fclose(secret);
    }
    ck_assert_int_eq(X509_set_issuer_name(x509, X509_get_subject_name(issuer)),
                     1);
    ck_assert_int_gt(X509_sign(x509, signs, EVP_sha256()), 0);
    write_files(dir, wanted->name, x509, key);
    if (issuer != x509) {
        X509_free(issuer);
        EVP_PKEY_free(signs);
    }
    X509_free(x509);
    EVP_PKEY_free(key);
}

/* As openssl rehash does for one authority. */
static void make_directory(const char *dir)
{
    FILE *pem = open_file(dir, "ca", ".pem", "r");
    X509 *ca = PEM_read_X509(pem, NULL, NULL, NULL);
    char link[CERTIFICATES_PATH_BYTES];

    fclose(pem);
    ck_assert_int_eq(mkdir(certificates_path(dir, "authorities"), 0700), 0);
    snprintf(link, sizeof(link), "authorities/%08lx.0",
             X509_NAME_hash(X509_get_subject_name(ca)));
    ck_assert_int_eq(symlink("../ca.pem", certificates_path(dir, link)), 0);
    X509_free(ca);
}

void certificates_make(const char *dir)
{
    static const struct certificate wanted[] = {
        {"ca", NULL, NULL, 3},
        {"other", NULL, NULL, 3},
        {"server", "ca", "DNS:localhost,IP:127.0.0.1,IP:::1", 3},
        {"elsewhere", "ca", "DNS:elsewhere.example,IP:127.0.0.2", 3},
        {"expired", "ca", "DNS:localhost,IP:127.0.0.1", 1},
        {"client", "ca", "DNS:client", 3},
        {"stranger", "other", "DNS:client", 3},
    };

    for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++)
        certificate_make(dir, &wanted[i]);
    make_directory(dir);
}

void certificates_remove(const char *dir)
{
    char command[CERTIFICATES_PATH_BYTES];

    ck_assert_int_eq(strncmp(dir, "/tmp/", strlen("/tmp/")), 0);
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    ck_assert_int_eq(system(command), 0);
}
