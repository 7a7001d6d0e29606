# SPDX-License-Identifier: Apache-2.0
# Completion of deft(1) for bash.

_deft()
{
    local cur=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} i name value words=
    COMPREPLY=()
    # Readline parts words at "=": --tier, =, 0.
    if [[ $cur == "=" ]]; then
        name=${COMP_WORDS[COMP_CWORD-1]} value=
    elif [[ ${COMP_WORDS[COMP_CWORD-1]} == "=" ]]; then
        name=${COMP_WORDS[COMP_CWORD-2]} value=$cur
    fi
    case ${name-} in
    --passes) words="cse fold algebra dce all none fuse" ;;
    --show) words="trace key guards plan why ir asm" ;;
    --levels) words="x86-64-v4 x86-64-v3 x86-64-v2 x86-64" ;;
    --target) words="x86-64 x86-64-v2 x86-64-v3 x86-64-v4 aarch64" ;;
    --tier) words="interp 0 1 all" ;;
    --source) mapfile -t COMPREPLY < <(compgen -d -- "$value"); return ;;
    --out | --inputs | --expect | --save-inputs | --save-outputs) mapfile -t COMPREPLY < <(compgen -f -- "$value"); return ;;
    --?*) return ;;
    esac
    if [[ -n $words ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$value")
        return
    fi
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W \
            "opt run aot dot diff minimize stats perfetto bundle report cache opcheck doctor ops api --version --help" -- "$cur")
        return
    fi
    local run="--tier= --threads= --seed= --passes= --fast --nofuse"
    case $command in
    ops | api) words="--json" ;;
    opt) words="--passes= --show= --target= --fast --nofuse --threads= --max-body=" ;;
    run) words="--check --bench --expect= --ulp= --inputs= --save-inputs= --save-outputs= $run" ;;
    aot) words="--out= --c --shared --cuda --name= --parameters= --open= --number= --link= --levels= --architectures= --multiprocessors= --fast" ;;
    dot) words="--fold --passes=" ;;
    minimize)
        words="--out= --with= --timeout= --memory= --tries= --"
        for ((i = 2; i < COMP_CWORD; i++)); do
            [[ ${COMP_WORDS[i]} == "--" ]] && words=$run
        done
        ;;
    stats) words="--json" ;;
    perfetto | bundle) words="--out=" ;;
    report) words="--out= --compare= --source= --limits= --events=" ;;
    cache)
        words="--dir="
        ((COMP_CWORD == 2)) && mapfile -t COMPREPLY < <(compgen -W "stat verify clear pack unpack" -- "$cur") && return
        ;;
    opcheck) words="--seed= --directions= --no-second" ;;
    doctor | ops) return ;;
    esac
    if [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
        [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
    fi
}

complete -o filenames -F _deft deft
