/* The same as directory.py by libldap: ten thousand entries with all values copied, or logins one after the other.

   directory URL BASE search|bind ROUNDS
   prints processor time and wall time in seconds, without the first round. */

#include <ldap.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static double cpu(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void fail(const char *what, int code)
{
    fprintf(stderr, "%s: %s\n", what, ldap_err2string(code));
    exit(1);
}

static void search(LDAP *ld, const char *base)
{
    LDAPMessage *found, *entry;
    BerElement *ber;
    char *name;
    long values = 0;
    const char *all = "(objectClass=*)";
    int code = ldap_search_ext_s(ld, base, LDAP_SCOPE_ONELEVEL, all, NULL, 0, NULL, NULL, NULL, 0, &found);
    if (code != LDAP_SUCCESS)
        fail("search", code);
    for (entry = ldap_first_entry(ld, found); entry; entry = ldap_next_entry(ld, entry)) {
        char *dn = ldap_get_dn(ld, entry);
        ldap_memfree(dn);
        for (name = ldap_first_attribute(ld, entry, &ber); name; name = ldap_next_attribute(ld, entry, ber)) {
            struct berval **held = ldap_get_values_len(ld, entry, name);
            values += ldap_count_values_len(held);
            ldap_value_free_len(held);
            ldap_memfree(name);
        }
        ber_free(ber, 0);
    }
    ldap_msgfree(found);
    if (values != 200000)
        fprintf(stderr, "expected 200000 values, got %ld\n", values), exit(1);
}

static void logins(LDAP *ld, const char *base)
{
    struct berval password = {2, "pw"};
    char dn[200];
    for (int n = 0; n < 200; n++) {
        snprintf(dn, sizeof dn, "uid=u%d,%s", n, base);
        int code = ldap_sasl_bind_s(ld, dn, LDAP_SASL_SIMPLE, &password, NULL, NULL, NULL);
        if (code != LDAP_SUCCESS)
            fail("bind", code);
    }
}

int main(int argc, char **argv)
{
    LDAP *ld;
    int version = 3;
    if (argc != 5)
        return 2;
    ldap_initialize(&ld, argv[1]);
    ldap_set_option(ld, LDAP_OPT_PROTOCOL_VERSION, &version);
    void (*work)(LDAP *, const char *) = strcmp(argv[3], "bind") ? search : logins;
    work(ld, argv[2]);
    double c = cpu(), w = now();
    for (int n = atoi(argv[4]); n > 0; n--)
        work(ld, argv[2]);
    printf("%.6f %.6f\n", cpu() - c, now() - w);
    return 0;
}
