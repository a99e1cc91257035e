package commands

import (
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/internal/printable"
)

// serverVariable is the environment's word for --server.
const serverVariable = "MINIMAL_AGENT_SERVER"

// connection is the flags of every command that asks an agent.
type connection struct{ cfg api.ClientConfig }

func (c *connection) register(p Program, flags *flag.FlagSet) {
	server := p.getenv(serverVariable)
	if server == "" {
		server = api.DefaultServer
	}
	flags.StringVar(&c.cfg.Server, "server", server, "address of the agent; the default may be in "+serverVariable)
	flags.StringVar(&c.cfg.TokenFile, "token-file", "", "file of the token that the agent wants")
	flags.StringVar(&c.cfg.CAFile, "ca-file", "", "file of the certificates that the agent's is checked with (default: the system's)")
}

func (c *connection) open() (*api.Client, error) {
	client, err := api.NewClient(c.cfg)
	return client, Usage(err)
}

// Formats of output.
const (
	formatTable = ""
	formatWide  = "wide"
	formatJSON  = "json"
	formatYAML  = "yaml"
)

// output is the flag -o.
type output string

func (o *output) register(flags *flag.FlagSet, formats ...string) {
	flags.Func("o", "`format` of the output: "+strings.Join(formats, ", ")+" (default: a table)", func(text string) error {
		if !slices.Contains(formats, text) {
			return fmt.Errorf("want %s", strings.Join(formats, " or "))
		}
		*o = output(text)
		return nil
	})
}

// data says whether the answer itself is wanted.
func (o output) data() bool { return o == formatJSON || o == formatYAML }

// printText prints lines that others have written.
func (p Program) printText(text string) error {
	_, err := fmt.Fprintln(p.Stdout, printable.Lines(strings.TrimSuffix(text, "\n"), ""))
	return err
}

// print prints the answer itself.
func (p Program) print(o output, answer any) error {
	var text []byte
	var err error
	if o == formatYAML {
		text, err = yaml.Marshal(answer)
	} else if text, err = json.MarshalIndent(answer, "", "  "); err == nil {
		text = append(text, '\n')
	}
	if err != nil {
		return err
	}
	_, err = p.Stdout.Write(text)
	return err
}
