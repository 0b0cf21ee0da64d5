#!/usr/bin/perl
# Unpacks Jane Austen's six novels from the data of the R package janeaustenr, without R:
#     read-austen.pl Rdata.rdb FOLDER
# writes FOLDER/emma.txt and so on, one line of the book per line. Public domain texts.
#
# Rdata.rdb is a row of records, [u32 big-endian: size when inflated][zlib stream], one for each
# novel. Inflated, a record is R's XDR serialization of a character vector.
use strict;
use warnings;
use Compress::Raw::Zlib qw(Z_STREAM_END);

my @novels = qw(emma mansfield-park northanger-abbey persuasion pride-and-prejudice
                sense-and-sensibility);
my ($expected_lines, $expected_bytes) = (73422, 4025029);

@ARGV == 2 or die "usage: read-austen.pl Rdata.rdb FOLDER\n";
my ($file, $folder) = @ARGV;
open my $input, '<:raw', $file or die "$file: cannot open: $!\n";
my $packed = do { local $/; <$input> };

# The lines of one inflated record. Integers are 32 bits, big-endian.
sub lines_of_record {
    my ($record) = @_;
    my $at = 2;    # after "X\n"
    my $integer = sub {
        die "$file: a record is cut off\n" if $at + 4 > length $record;
        my $value = unpack 'N', substr $record, $at, 4;
        $at += 4;
        return $value;
    };
    die "$file: a record is not an XDR serialization\n" if substr($record, 0, 2) ne "X\n";
    my $version = $integer->();
    $integer->() for 1 .. 2;    # the writer's version of R, the oldest reader's
    $at += $integer->() if $version >= 3;    # the native encoding's name
    die "$file: a record is not a character vector\n" if ($integer->() & 0xff) != 16;
    my @lines;
    for (1 .. $integer->()) {
        die "$file: line $_ of a record is not a string\n" if ($integer->() & 0xff) != 9;
        my $length = $integer->();
        die "$file: a record is cut off\n" if $at + $length > length $record;
        push @lines, substr $record, $at, $length;
        $at += $length;
    }
    return @lines;
}

my ($lines, $bytes) = (0, 0);
for my $novel (@novels) {
    die "$file: ends before '$novel'\n" if length $packed < 5;
    my $size = unpack 'N', substr $packed, 0, 4, '';
    my ($inflater) = Compress::Raw::Zlib::Inflate->new(-ConsumeInput => 1);
    my $status = $inflater->inflate($packed, my $record);
    die "$file: '$novel' cannot be inflated\n"
        if $status != Z_STREAM_END || length $record != $size;
    my @text = lines_of_record($record);
    open my $output, '>:raw', "$folder/$novel.txt" or die "$folder/$novel.txt: cannot open: $!\n";
    print {$output} map { "$_\n" } @text;
    close $output or die "$folder/$novel.txt: cannot write: $!\n";
    $lines += @text;
    $bytes += -s "$folder/$novel.txt";
}
die "$file: expected $expected_lines lines and $expected_bytes bytes, "
    . "found $lines and $bytes: another edition of the package\n"
    if $lines != $expected_lines || $bytes != $expected_bytes;
