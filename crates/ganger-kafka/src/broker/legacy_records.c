/* librdkafka's reader of record batches, with the fault mended that empties records of the legacy
 * formats (magic 0 and 1; librdkafka's issue 5549, in 2.5 to 2.15): their keys and values have lengths
 * of four bytes whatever the version of the response that they come in, but are read as that response's
 * own strings would be, so that each seems to be null. build.rs compiles this, and the linker takes it in
 * place of the file that it includes. See docs/decisions/kafka-librdkafka.md. */

#include "rdkafka_int.h"

#if RD_KAFKA_VERSION != 0x020c01ff
#error "another librdkafka: remove this where it has the fix (2.16), else see whether it fits and say so here"
#endif

/* Used in the included file for these two fields alone. */
#undef rd_kafka_buf_read_kbytes
#define rd_kafka_buf_read_kbytes(rkbuf, kbytes)                                \
        do {                                                                   \
                rd_kafka_buf_read_i32(rkbuf, &(kbytes)->len);                  \
                if (RD_KAFKAP_BYTES_IS_NULL(kbytes)) {                         \
                        (kbytes)->data = NULL;                                 \
                        (kbytes)->len  = 0;                                    \
                } else if ((kbytes)->len == 0)                                 \
                        (kbytes)->data = "";                                   \
                else if (!((kbytes)->data = rd_slice_ensure_contig(            \
                               &(rkbuf)->rkbuf_reader, (kbytes)->len)))        \
                        rd_kafka_buf_check_len(rkbuf, (kbytes)->len);          \
        } while (0)

#include "rdkafka_msgset_reader.c"
