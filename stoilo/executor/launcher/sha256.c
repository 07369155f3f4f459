#define _GNU_SOURCE
#include <string.h>

#include "sha256.h"

#if defined(__x86_64__) && !defined(SHA256_PLAIN)
#define HAVE_SHA_INSTRUCTIONS 1
#include <cpuid.h>
#include <immintrin.h>
#endif

enum { BLOCK = 64 };

static const uint32_t FRACTIONS[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t turn(uint32_t word, int by)
{
    return (word >> by) | (word << (32 - by));
}

static uint32_t read_word(const unsigned char *bytes)
{
    return ((uint32_t)bytes[0] << 24) | ((uint32_t)bytes[1] << 16) | ((uint32_t)bytes[2] << 8) |
           (uint32_t)bytes[3];
}

static void expand(uint32_t words[64], const unsigned char *block)
{
    for (int i = 0; i < 16; i++)
        words[i] = read_word(block + 4 * i);
    for (int i = 16; i < 64; i++) {
        uint32_t a = words[i - 15];
        uint32_t b = words[i - 2];
        uint32_t low = turn(a, 7) ^ turn(a, 18) ^ (a >> 3);
        uint32_t high = turn(b, 17) ^ turn(b, 19) ^ (b >> 10);
        words[i] = words[i - 16] + low + words[i - 7] + high;
    }
}

static void mix_plain(uint32_t state[8], const unsigned char *data, size_t blocks)
{
    uint32_t words[64];
    for (; blocks > 0; blocks--, data += BLOCK) {
        uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
        uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
        expand(words, data);
        for (int i = 0; i < 64; i++) {
            uint32_t choice = (e & f) ^ (~e & g);
            uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
            uint32_t sum = h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + choice + FRACTIONS[i] +
                           words[i];
            uint32_t other = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + majority;
            h = g, g = f, f = e, e = d + sum;
            d = c, c = b, b = a, a = sum + other;
        }
        state[0] += a, state[1] += b, state[2] += c, state[3] += d;
        state[4] += e, state[5] += f, state[6] += g, state[7] += h;
    }
}

#ifdef HAVE_SHA_INSTRUCTIONS
/* The instructions keep the state as two vectors, {a,b,e,f} and {c,d,g,h}, and do two rounds
 * each (Intel, "SHA Extensions", 2013). */
__attribute__((target("sha,sse4.1"))) static void
mix_fast(uint32_t state[8], const unsigned char *data, size_t blocks)
{
    const __m128i order = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128((const void *)state), 0xb1);
    __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128((const void *)(state + 4)), 0x1b);
    __m128i abef = _mm_alignr_epi8(cdab, efgh, 8);
    __m128i cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);

    for (; blocks > 0; blocks--, data += BLOCK) {
        const __m128i abef_before = abef, cdgh_before = cdgh;
        __m128i words[4];
        for (int i = 0; i < 4; i++)
            words[i] = _mm_shuffle_epi8(_mm_loadu_si128((const void *)(data + 16 * i)), order);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            __m128i *now = &words[i % 4];
            const __m128i last = words[(i + 3) % 4];
            __m128i sum = _mm_add_epi32(*now, _mm_loadu_si128((const void *)(FRACTIONS + 4 * i)));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
            if (i < 12) {
                __m128i next = _mm_sha256msg1_epu32(*now, words[(i + 1) % 4]);
                next = _mm_add_epi32(next, _mm_alignr_epi8(last, words[(i + 2) % 4], 4));
                *now = _mm_sha256msg2_epu32(next, last);
            }
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    const __m128i feba = _mm_shuffle_epi32(abef, 0x1b);
    const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128((void *)state, _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128((void *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

static bool has_instructions(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSE4_1) || !(c & bit_SSSE3))
        return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA);
}
#endif

static void mix(uint32_t state[8], const unsigned char *data, size_t blocks)
{
#ifdef HAVE_SHA_INSTRUCTIONS
    static int fast = -1;
    if (fast < 0)
        fast = has_instructions();
    if (fast) {
        mix_fast(state, data, blocks);
        return;
    }
#endif
    mix_plain(state, data, blocks);
}

void sha256_begin(struct sha256 *hash)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(hash->state, start, sizeof start);
    hash->length = 0;
}

void sha256_add(struct sha256 *hash, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    size_t held = (size_t)(hash->length % BLOCK);
    hash->length += size;
    if (held > 0) {
        size_t part = size < BLOCK - held ? size : BLOCK - held;
        memcpy(hash->block + held, bytes, part);
        if (held + part < BLOCK)
            return;
        mix(hash->state, hash->block, 1);
        bytes += part, size -= part;
    }
    mix(hash->state, bytes, size / BLOCK);
    if (size % BLOCK > 0)
        memcpy(hash->block, bytes + size - size % BLOCK, size % BLOCK);
}

void sha256_end(struct sha256 *hash, char hex[HEX + 1])
{
    static const unsigned char padding[BLOCK] = {0x80};
    const uint64_t bits = hash->length * 8;
    const size_t held = (size_t)(hash->length % BLOCK);
    unsigned char tail[8];

    sha256_add(hash, padding, held < 56 ? 56 - held : 120 - held);
    for (int i = 0; i < 8; i++)
        tail[i] = (unsigned char)(bits >> (56 - 8 * i));
    sha256_add(hash, tail, sizeof tail);
    for (int i = 0; i < HEX; i++)
        hex[i] = "0123456789abcdef"[hash->state[i / 8] >> (28 - 4 * (i % 8)) & 15];
    hex[HEX] = '\0';
}

bool has_digest(const void *data, size_t size, const char *hex)
{
    char found[HEX + 1];
    struct sha256 hash;
    sha256_begin(&hash);
    sha256_add(&hash, data, size);
    sha256_end(&hash, found);
    return memcmp(found, hex, HEX) == 0;
}
