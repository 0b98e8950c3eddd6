#!/usr/bin/env bash
# The table of docs/results.md: what TESA, UmbrellaFS and MRAM published and what runs here, from the JSON of the benchmarks:
#   make bench-write-back ARGS="--disks deskstar_500gb,mlc_samsung,slc_memoright --json write-back.json"
#   make bench-staging ARGS="--files 5000,15000,25000,35000,45000,55000 --json staging.json"
#   cargo bench -p umbrella --bench live -- scenarios --json scenarios.json
#   scripts/results-table.sh write-back.json staging.json scenarios.json
set -euo pipefail

readonly usage="usage: scripts/results-table.sh WRITE-BACK.json STAGING.json SCENARIOS.json"
readonly write_back=${1:?"$usage"} staging=${2:?"$usage"} scenarios=${3:?"$usage"}
command -v jq >/dev/null || { echo "results-table: jq is missing: apt-get install jq" >&2; exit 1; }

jq --null-input --raw-output \
    --slurpfile write_back "$write_back" --slurpfile staging "$staging" --slurpfile scenarios "$scenarios" '
    def shown: if . == null then "not run" else (. * 10 | round / 10 | if . == 0 then 0 else . end | tostring) end;
    def of($report; $row; $system; $figure):
        first(($report.rows[]? | select(.name == $row) | .systems[] | select(.name == $system) | .medians[$figure]) // empty) // null;
    def change($new; $old): if $new == null or $old == null or $old == 0 then null else ($new / $old - 1) * 100 end;
    # How much more work in the same time.
    def gain($report; $row; $system; $than): change(of($report; $row; $than; "cost"); of($report; $row; $system; "cost"));
    def figure($report; $row; $system; $than; $figure):
        change(of($report; $row; $system; $figure); of($report; $row; $than; $figure));
    def best: map(select(. != null)) | max;
    def least: map(select(. != null)) | min;
    def mean: map(select(. != null)) | if length == 0 then null else add / length end;
    def line($paper; $figure; $claim; $published; $ours; $command):
        "| \($paper) | \($figure) | \($claim) | \($published) | \($ours | shown) | `\($command)` |";
    ($write_back[0]) as $w | ($staging[0]) as $s | ($scenarios[0]) as $c
    | " on deskstar_500gb" as $disk | " on mlc_samsung" as $flash | " on slc_memoright" as $slc
    | "ARGS=\"--disks deskstar_500gb,mlc_samsung,slc_memoright\"" as $slc_args
    | ["rnd-write", "fileserver", "postmark", "data-backup", "seq-write"] as $tesa
    | def over($than): [$tesa[] | gain($w; . + $disk; "zone_segment"; $than)];
      def all($system; $than; $figure): [$tesa[] | figure($w; . + $disk; $system; $than; $figure)];
      def wb($figure; $claim; $published; $ours): line("TESA"; $figure; $claim; $published; $ours; "make bench-write-back");
      def umbrella($figure; $claim; $published; $ours; $command): line("UmbrellaFS"; $figure; $claim; $published; $ours; $command);
      def mram($figure; $claim; $published; $ours; $args): line("MRAM"; $figure; $claim; $published; $ours; "make bench-staging" + $args);
      def mram($figure; $claim; $published; $ours): mram($figure; $claim; $published; $ours; "");
      "| paper | figure | claim | published, % | here, % | command |",
      "| --- | --- | --- | ---: | ---: | --- |",
      wb("8"; "TESA over the kernel, up to"; "33.1"; over("kernel") | best),
      wb("8"; "TESA over `recency`, up to"; "21.0"; over("recency") | best),
      wb("8"; "TESA over `segment`, up to"; "10.9"; over("segment") | best),
      wb("8"; "seq-write: TESA over the kernel"; "about 0"; gain($w; "seq-write" + $disk; "zone_segment"; "kernel")),
      wb("7"; "TESA over `zone`, up to"; "15.4"; over("zone") | best),
      wb("9"; "size of a request: TESA over `segment`, mean"; "-5.7"; all("zone_segment"; "segment"; "request_bytes") | mean),
      wb("9"; "distance of requests: TESA over `segment`, up to"; "-19.5"; all("zone_segment"; "segment"; "distance_bytes") | least),
      wb("9"; "bytes written: `recency` over the kernel, mean"; "less"; all("recency"; "kernel"; "written_bytes") | mean),
      wb("9"; "bytes written: `segment` over the kernel, mean"; "less"; all("segment"; "kernel"; "written_bytes") | mean),
      wb("9"; "bytes written: TESA over the kernel, mean"; "less"; all("zone_segment"; "kernel"; "written_bytes") | mean),
      umbrella("23"; "8 Zipf writers on a disk: time of `two_queue`"; "-11"; figure($w; "iozone" + $disk; "two_queue"; "kernel"; "cost"); "make bench-write-back"),
      umbrella("24"; "8 Zipf writers on the Samsung drive: time of `two_queue`"; "-43"; figure($w; "iozone" + $flash; "two_queue"; "kernel"; "cost"); "make bench-write-back"),
      umbrella("25"; "8 Zipf writers on the Memoright drive: time of `two_queue`"; "-34"; figure($w; "iozone" + $slc; "two_queue"; "kernel"; "cost"); "make bench-write-back " + $slc_args),
      umbrella("27"; "dbench on a disk: `sorted` over the kernel"; "19"; gain($w; "dbench" + $disk; "sorted"; "kernel"); "make bench-write-back"),
      umbrella("27"; "dbench on the Samsung drive: `sorted` over the kernel"; "13"; gain($w; "dbench" + $flash; "sorted"; "kernel"); "make bench-write-back"),
      umbrella("27"; "dbench on the Memoright drive: `sorted` over the kernel"; "33"; gain($w; "dbench" + $slc; "sorted"; "kernel"); "make bench-write-back " + $slc_args),
      ([["two-disks", "34", "two disks: time of `two_queue` on both", "policy", "-9"],
        ["two-disks", "34", "two disks: time of `two_queue` on one", "two-queue-on-one", "-7"],
        ["disk-and-flash", "35", "disk and Samsung drive: time of `two_queue` on both", "policy", "-8"],
        ["disk-and-flash", "35", "disk and Samsung drive: time of `two_queue` on the disk", "two-queue-on-disk", "-8"],
        ["disk-and-flash", "35", "disk and Samsung drive: time of `two_queue` on the flash", "two-queue-on-flash", "-9"]][]
          | umbrella(.[1]; .[2]; .[4]; figure($c; .[0]; .[3]; "kernel-on-both"; "cost");
              "cargo bench -p umbrella --bench live -- scenarios")),
      ([["random placement", "random", "-44"], ["all on flash", "all-flash", "-51"], ["all on RAID 5", "all-disk", "-26"]][]
          | umbrella("20"; "what is only read on flash: time against \(.[0])"; .[2]; figure($c; "placement"; "policy"; .[1]; "cost");
              "cargo bench -p umbrella --bench live -- scenarios")),
      (mram("4.1"; "65536 empty files: time with staging, over the mount without"; "4"; figure($s; "create-empty"; "staging"; "mount"; "cost")),
        mram("4.2"; "Bonnie++, time of all tests: staging over the mount without"; "about 0"; gain($s; "bonnie"; "staging"; "mount")),
        mram("4.2"; "Bonnie++, time of all tests: WASL over the kernel on the same mount"; "2 to 5"; gain($s; "bonnie"; "policy"; "mount"))),
      ([["5000", "more than 20", "-10", "-"], ["15000", "20", "30", "30 to 40"], ["25000", "20", "30", "30 to 40"],
        ["35000", "20", "30", "30 to 40"], ["45000", "10", "30", "30 to 40"], ["55000", "10", "30", "30 to 40"]][]
          | ("postmark-" + .[0]) as $row
          | (if IN(.[0]; "5000", "25000", "55000") then "" else " ARGS=\"--files \(.[0])\"" end) as $args
          | mram("4.4"; "\(.[0]) files: staging over the mount without"; .[1]; gain($s; $row; "staging"; "mount"); $args),
            mram("4.4"; "\(.[0]) files: WASL over the kernel on the same mount"; .[2]; gain($s; $row; "policy"; "mount"); $args),
            mram("4.7"; "\(.[0]) files: both over the mount without"; .[3]; gain($s; $row; "staging+policy"; "mount"); $args),
            mram("-"; "\(.[0]) files: time with staging, against ext4 without a mount (kernel module)"; "3"; figure($s; $row; "staging"; "native"; "cost"); $args)),
      mram("4.3"; "untar: staging over the mount without"; "-6 to -7"; gain($s; "untar"; "staging"; "mount")),
      mram("4.3"; "untar: WASL over the kernel on the same mount"; "10"; gain($s; "untar"; "policy"; "mount")),
      mram("4.3"; "untar: both over the mount without"; "a little less than the sum"; gain($s; "untar"; "staging+policy"; "mount")),
      "",
      "| MRAM, figure 4.6: blocks from the first to the last of a file (and pieces a file has) | published | ext4 | the mount | staging | staging and WASL |",
      "| --- | ---: | ---: | ---: | ---: | ---: |",
      ([["5000", "4,000"], ["25000", "between"], ["55000", "12,000"]][]
          | ("postmark-" + .[0]) as $row
          | def spread($system): "\(of($s; $row; $system; "spread_blocks") | shown) (\(of($s; $row; $system; "fragments") | . * 100 | round / 100))";
            "| \(.[0]) files | \(.[1]); with staging about 1,000 | \(spread("native")) | \(spread("mount")) | \(spread("staging")) | \(spread("staging+policy")) |")
'
