#!/bin/sh
# A stand-in for a coding agent. It reads its prompt from standard input, works in the current directory, which is the
# work area of its task, and keeps what it knows in files there. Each run does what the prompt calls for, and ends when
# it waits for somebody.
set -eu

prompt=$(cat)
phase=$(printf '%s\n' "$prompt" | sed -n 's/^You are in phase \([0-9][0-9]*\) of .*/\1/p' | tail -n 1)
rework=$(printf '%s\n' "$prompt" | sed -n 's/^Phase [0-9][0-9]* is not approved: //p' | tail -n 1)
answer=$(printf '%s\n' "$prompt" | sed -n 's/^Answer [^ ]* to "Who reads it?": //p' | tail -n 1)
mkdir -p docs/planning docs/design

# What a person said stays known when a later prompt does not say it again.
[ -z "$answer" ] || printf '%s\n' "$answer" > docs/planning/readers.txt
[ -z "$rework" ] || printf '%s\n' "$rework" >> "docs/rework-$phase.txt"

# The document of a phase, with what reviews asked for.
write() {
  {
    printf 'For %s.\n\n' "$(cat docs/planning/readers.txt)"
    printf '%s\n' "$2"
    if [ -f "docs/rework-$phase.txt" ]; then
      printf '\nChanged as asked:\n'
      sed 's/^/- /' "docs/rework-$phase.txt"
    fi
  } > "$1.new"
  mv "$1.new" "$1"
  printf 'Document created: %s\n' "$1"
}

complete() {
  printf '\n=== PHASE %s COMPLETE ===\n\nDocuments created:\n- %s\n' "$phase" "$1"
}

case $phase in
1)
  echo 'Phase 1: The brief'
  if [ ! -f docs/planning/readers.txt ]; then
    cat <<'BLOCK'
[USER_QUESTION]
category: choice
question: Who reads it?
options:
- engineers
- customers
required: true
[/USER_QUESTION]
BLOCK
    exit 0
  fi
  write docs/planning/brief.md 'A price list and a report are to be written.'
  complete docs/planning/brief.md
  ;;
2)
  echo 'Phase 2: The prices'
  if [ -z "${PRICE_API_KEY:-}" ]; then
    cat <<'BLOCK'
[DEPENDENCY_REQUEST]
type: api_key
name: PRICE_API_KEY
description: The key of the service that knows the prices.
required: true
[/DEPENDENCY_REQUEST]
BLOCK
    exit 0
  fi
  write docs/design/prices.md 'Tea: 3.20 a box.'
  complete docs/design/prices.md
  ;;
3)
  echo 'Phase 3: The report'
  echo 'Progress: 90%'
  write docs/report.md "# ${REPORT_TITLE:-Report}

$(sed -n '3p' docs/planning/brief.md) $(sed -n '3p' docs/design/prices.md)"
  complete docs/report.md
  ;;
*)
  cat <<'BLOCK'
[ERROR]
type: fatal
message: The prompt names no phase from 1 to 3.
recovery: Make a task with three phases.
[/ERROR]
BLOCK
  ;;
esac
