# paper_move.bash TARGET PID...: moves parked processes from this node to TARGET the paper's way (its section 4.3):
# CRIU dumps each to files on this node's disk, which ends it, `scp -r` carries the files over, CRIU restores each
# there. Prints the times and what went over the wire as one JSON object; leaves no file on either node.
#
# The paper does not say whether a node's ranks take these steps together; its times, which are so many seconds per rank
# from the first rank on, look as if they did not. Here they do, each step for all at once, which is faster: all dumps,
# then one scp for each, then all restores, told by a connection that is open before the time begins, as the paper's
# proxies have one. What helps it, too: the disk is memory (tmpfs), there being no other on a node of the lab, and the
# processes come back without sockets that must be replaced.
# shellcheck shell=bash
set -euo pipefail
target=$1
shift
images=/tmp/paper-images

now_us() { echo "${EPOCHREALTIME/[.,]/}"; }
sent_bytes() { cat /sys/class/net/eth0/statistics/tx_bytes; }

# Of the first log that has any, on stderr; then the end.
give_up() {
  echo "paper_move: $1 failed: $(grep -h Error "$images"/*/dump.log "$images"/*/restore.log 2>/dev/null | tail -3)" >&2
  exit 1
}

# shellcheck disable=SC2016 # expanded on the target
restore_all='
  jobs=()
  for folder in '$images'/*/; do
    criu restore -d -D "$folder" -o restore.log </dev/null >/dev/null 2>&1 & jobs+=($!)
  done
  answer=restored
  for job in "${jobs[@]}"; do wait $job || answer="$(grep -h Error '$images'/*/restore.log | tail -1)"; done
  echo "$answer"'

coproc TARGET { ssh "$target" bash; }
echo "rm -rf $images; mkdir $images; echo ready" >&"${TARGET[1]}"
read -r answer <&"${TARGET[0]}"
for pid; do mkdir -p "$images/$pid"; done

sent_before=$(sent_bytes)
began=$(now_us)
jobs=()
for pid; do
  criu dump -t "$pid" -D "$images/$pid" -o dump.log >/dev/null 2>&1 &
  jobs+=($!)
done
for job in "${jobs[@]}"; do wait "$job" || give_up dump; done
dumped=$(now_us)
jobs=()
for pid; do
  scp -q -r "$images/$pid" "$target:$images/" &
  jobs+=($!)
done
for job in "${jobs[@]}"; do wait "$job" || give_up scp; done
transferred=$(now_us)
echo "$restore_all" >&"${TARGET[1]}"
read -r answer <&"${TARGET[0]}"
restored=$(now_us)
[[ $answer == restored ]] || { echo "paper_move: restore failed: $answer" >&2 && exit 1; }

jq -n --argjson t "[$began, $dumped, $transferred, $restored]" \
  --argjson link "$(($(sent_bytes) - sent_before))" \
  --argjson image "$(du -sb --apparent-size "$images" | cut -f1)" '
  {move_ms: (($t[3] - $t[0]) / 1000), image_bytes: $image, link_bytes: $link,
   phases_ms: {dump: (($t[1] - $t[0]) / 1000), transfer: (($t[2] - $t[1]) / 1000), restore: (($t[3] - $t[2]) / 1000)}}'
rm -rf "$images"
echo "rm -rf $images; exit" >&"${TARGET[1]}"
# shellcheck disable=SC2154 # coproc sets it
wait "$TARGET_PID" || true
