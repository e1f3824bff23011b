# Sourced by the scripts beside it: runs one long step at a time and shows that it lives.

HEARTBEAT_SECONDS=5
# For every uv below: where TLS goes through a company's own authority, only the system knows it.
export UV_SYSTEM_CERTS=${UV_SYSTEM_CERTS:-1}

# Before `set -e` ends the script inside a step, this reports the step and its output.
step_title=""
step_log=""
step_beat=""

# step TITLE COMMAND...: runs the command without stdin; its output is shown only when it fails.
step() {
  step_title=$1
  shift
  step_log=$(mktemp "${TMPDIR:-/tmp}/mcp-code-portal-step.XXXXXX")
  local started=$SECONDS
  echo "==> $step_title" >&2
  _heartbeat "$started" </dev/null &
  step_beat=$!
  "$@" >"$step_log" 2>&1 </dev/null
  _stop_heartbeat
  if ((SECONDS - started >= HEARTBEAT_SECONDS)); then echo "    done in $((SECONDS - started)) s" >&2; fi
  rm -f "$step_log"
  step_title=""
}

fail() {
  echo "${0##*/}: $*" >&2
  exit 1
}

_heartbeat() {
  while sleep "$HEARTBEAT_SECONDS" >/dev/null 2>&1; do
    echo "    ... $((SECONDS - $1)) s" >&2
  done
}

_stop_heartbeat() {
  if [[ -n $step_beat ]]; then
    kill "$step_beat" 2>/dev/null || true
    wait "$step_beat" 2>/dev/null || true
    step_beat=""
  fi
}

_report_failed_step() {
  local status=$?
  _stop_heartbeat
  if [[ -n $step_title && $status != 0 ]]; then
    tail -n 60 "$step_log" >&2
    echo "${0##*/}: failed at: $step_title" >&2
    rm -f "$step_log"
  fi
  exit "$status"
}

trap _report_failed_step EXIT
