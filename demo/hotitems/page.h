/*
 * The files of the live page, which are part of the program: page/embed.cmake
 * makes them into arrays at build time.
 */
#ifndef HOTITEMS_PAGE_H
#define HOTITEMS_PAGE_H

#include <stddef.h>

struct page_file {
    const char *path; /* as in the request: "/" is index.html */
    const char *type; /* of the content */
    const char *etag; /* quoted; strong: the same bytes have the same tag */
    const unsigned char *bytes;
    size_t size;
};

/* The file that is served at path; NULL if there is none. */
const struct page_file *page_find(const char *path);

/* What every answer of the server that serves the page sends as its
 * Content-Security-Policy: the page loads nothing from other hosts, runs no
 * inline script, and connects to this server and to instances at 127.0.0.1. */
extern const char page_policy[];

#endif
