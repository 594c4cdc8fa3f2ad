/* Keys and certificates for servers of a test, made in a moment. */
#ifndef CERTIFICATES_H
#define CERTIFICATES_H

#define CERTIFICATES_PATH_BYTES 80

/* What a certificate says. */
struct certificate {
    const char *name;   /* of the files NAME.pem and NAME.key, and its own */
    const char *issuer; /* the name of the one that signs; NULL: itself */
    const char *hosts;  /* such as "DNS:localhost,IP:127.0.0.1"; NULL: none, an
                           authority */
    int days;           /* how long it is valid from yesterday on */
};

/* Make its two files in dir, where those of its issuer are. */
void certificate_make(const char *dir, const struct certificate *wanted);

/*
 * Make those that most tests need, and a directory "authorities" with ca.pem as
 * OpenSSL looks for it:
 * ca, other   authorities
 * server      by ca, for localhost, 127.0.0.1 and ::1
 * elsewhere   by ca, for another name and another address
 * expired     by ca, for localhost and 127.0.0.1, until a moment ago
 * client      by ca
 * stranger    by other
 */
void certificates_make(const char *dir);

/* Remove dir, with what was made in it. */
void certificates_remove(const char *dir);

/* The path of a file there; one text for each of the next 16 calls. */
const char *certificates_path(const char *dir, const char *file);

#endif
