/* What a Redis that is a primary answers to the set-up of a connection. */
#ifndef TEST_GREETING_H
#define TEST_GREETING_H

#define PRIMARY "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"
#define TIME "*2\r\n$1\r\n5\r\n$4\r\n7000\r\n"
#define TIME_MS 5007
#define GREETING PRIMARY TIME

#endif
