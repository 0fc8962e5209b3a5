# Perl's HTTP::Tiny, which says what it took for an answer's Server field: `web.pl HOST PORT...`, see web.py.
use strict;
use HTTP::Tiny;
$| = 1;
my $host = shift;
for my $port (@ARGV) {
    my $client = HTTP::Tiny->new(timeout => 3, max_redirect => 0, keep_alive => 0);
    my $answer = $client->get("http://$host:$port/");
    my $field = $answer->{headers}{server} // "";
    $field = join ",", @$field if ref $field;
    print $port, " ", unpack("H*", $field) || "-", "\n";
}
