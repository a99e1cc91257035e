package commands_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/examples/minimal-agent/commands"
)

func TestCompletion(t *testing.T) {
	t.Parallel()
	server := serveAgent(t, agentStatus)
	for words, want := range map[string]string{
		"e":                                    "events evict exec explain",
		"conf":                                 "config",
		"zzz":                                  "",
		"--li":                                 "--listen",
		"run --":                               "--config --listen --manifests",
		"--listen x --m":                       "--manifests",
		"config ":                              "dump validate",
		"config dump --c":                      "--config",
		"config validate ":                     "",
		"completion z":                         "zsh",
		"completion bash ":                     "",
		"status --":                            "--ca-file --cert-file --key-file --server --token-file",
		"status ":                              "",
		"logs -":                               "--all-containers --all-namespaces --ca-file --cert-file --container --follow --key-file --max-log-requests --namespace --prefix --previous --selector --server --since --tail --timestamps --token-file -A -c -f -l -n -p",
		"logs fl":                              "flaky-node1",
		"logs shop/":                           "shop/web-node1 shop/webhook-node1",
		"logs flaky ":                          "",
		"exec -it fl":                          "flaky-node1",
		"port-forward fl":                      "flaky-node1",
		"restart fl":                           "flaky-node1",
		"images ":                              "",
		"logs -f two":                          "two-node1",
		"logs --tail ":                         "",
		"explain --server http://127.0.0.1:1 ": "",
		"explain --server nonsense ":           "",
		"nonsense ":                            "",
	} {
		var stdout bytes.Buffer
		args := append([]string{"__complete"}, strings.Split(words, " ")...)
		require.Equal(t, commands.ExitOK, program(server, &stdout, io.Discard).Main(t.Context(), args), words)
		require.Equal(t, want, strings.Join(strings.Fields(stdout.String()), " "), "%q", words)
	}
	var stdout bytes.Buffer
	require.Equal(t, commands.ExitOK, program(server, &stdout, io.Discard).Main(t.Context(), []string{"__complete"}))
	require.Contains(t, stdout.String(), "status\n")
}

// TestCompletion_InBash sources the script in a shell and completes a word: the program gets the
// previous words unchanged, and its output becomes the candidates.
func TestCompletion_InBash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fake := "#!/bin/sh\nprintf '%s|' \"$@\" >&2\nprintf '<%s>\\n' \"$@\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "minimal-agent"), []byte(fake), 0o700))
	var script bytes.Buffer
	require.Equal(t, commands.ExitOK, program("", &script, io.Discard).Main(t.Context(), []string{"completion", "bash"}))
	shell := exec.CommandContext(t.Context(), "bash", "--norc", "-c", script.String()+`
COMP_WORDS=(minimal-agent logs -c 'two words' '') COMP_CWORD=4
_minimal_agent minimal-agent
printf '%s\n' "${COMPREPLY[@]}"`)
	shell.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
	out, err := shell.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Equal(t, "<__complete>\n<logs>\n<-c>\n<two words>\n<>\n", string(out))
}
