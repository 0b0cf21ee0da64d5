#!/usr/bin/perl
# Prints the content of a TensorBoard event file: wall time, step, tag and value of every scalar, a line
# each, after the file's version and the session's start. Written from the descriptions of TFRecord
# and of protocol buffers; the checksum goes bit by bit.
use strict;
use warnings;

sub crc32c {
    my ($data) = @_;
    my $crc = 0xFFFFFFFF;
    for my $byte (unpack 'C*', $data) {
        $crc ^= $byte;
        $crc = $crc & 1 ? ($crc >> 1) ^ 0x82F63B78 : $crc >> 1 for 1 .. 8;
    }
    return $crc ^ 0xFFFFFFFF;
}

sub check {
    my ($data, $stored) = @_;
    my $crc = crc32c($data);
    my $masked = ((($crc >> 15 | $crc << 17) & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF;
    die "checksum mismatch: stored $stored, computed $masked\n" if $masked != $stored;
}

# The fields of a message: [number, value] each, of types 0 (varint), 1 (8 bytes), 2 (counted) and
# 5 (4 bytes).
sub fields {
    my ($message) = @_;
    my $at = 0;
    my $varint = sub {
        my ($number, $shift, $byte) = (0, 0);
        do {
            die "a varint is cut off\n" if $at >= length $message;
            $byte = ord substr $message, $at++, 1;
            $number |= ($byte & 127) << $shift;
            $shift += 7;
        } while $byte > 127;
        return $number;
    };
    my @fields;
    while ($at < length $message) {
        my $key = $varint->();
        my $type = $key & 7;
        my $size = $type == 1 ? 8 : $type == 5 ? 4 : $type == 2 ? $varint->() : 0;
        die "unknown type $type\n" if !grep { $type == $_ } 0, 1, 2, 5;
        die "a field is cut off\n" if $at + $size > length $message;
        push @fields, [$key >> 3, $type == 0 ? $varint->() : substr $message, $at, $size];
        $at += $size;
    }
    return @fields;
}

die "the checksum of 123456789 is wrong\n" if crc32c('123456789') != 0xE3069283;
my $file = do { local $/; open my $in, '<:raw', $ARGV[0] or die "$ARGV[0]: $!\n"; <$in> };
my $at = 0;
while ($at + 12 <= length $file) {
    my ($length, $sum) = unpack 'Q< L<', substr $file, $at, 12;
    check(substr($file, $at, 8), $sum);
    last if $at + 16 + $length > length $file;
    my $message = substr $file, $at + 12, $length;
    check($message, unpack 'L<', substr $file, $at + 12 + $length, 4);
    $at += 16 + $length;
    my ($time, $step, @lines) = (0, 0);
    for (fields($message)) {
        my ($number, $value) = @$_;
        $time = unpack 'd<', $value if $number == 1;
        $step = $value if $number == 2;
        push @lines, "version\t$value" if $number == 3;
        push @lines, map { "session\t$_->[1]" } fields($value) if $number == 7;
        next if $number != 5;
        for (fields($value)) {
            my %scalar = map { $_->[0] => $_->[1] } fields($_->[1]);
            push @lines, sprintf "%s\t%.7g", $scalar{1}, unpack 'f<', $scalar{2};
        }
    }
    printf "%.6f\t%d\t%s\n", $time, $step, $_ for @lines;
}
