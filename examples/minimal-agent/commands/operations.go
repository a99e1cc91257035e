package commands

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/internal/printable"
)

func (p Program) restart() command {
	var conn connection
	var in scope
	return command{
		name: "restart", args: "POD", summary: "stop a pod's containers and start them again in a new sandbox",
		flags: func(f *flag.FlagSet) {
			conn.register(p, f)
			in.register(f)
		},
		complete: p.completePods(&conn),
		run: func(ctx context.Context, args []string) error {
			if len(args) != 1 {
				return usagef("restart requires exactly one pod: %s restart POD", p.Name)
			}
			client, err := conn.open()
			if err != nil {
				return err
			}
			defer client.Close()
			pod, err := find(ctx, client, in.arg(args[0]))
			if err != nil {
				return err
			}
			r, err := client.Restart(ctx, pod.Namespace, pod.Name)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(p.Stdout, printable.Line("pod/"+r.Name+" restarting"))
			return err
		},
	}
}

func (p Program) images() command {
	var conn connection
	var format output
	return command{
		name: "images", summary: "list the images of the runtime, and which of them garbage collection would delete",
		flags: func(f *flag.FlagSet) {
			conn.register(p, f)
			format.register(f, formatJSON, formatYAML)
		},
		run: func(ctx context.Context, args []string) error {
			if err := noArguments(args); err != nil {
				return err
			}
			client, err := conn.open()
			if err != nil {
				return err
			}
			defer client.Close()
			list, err := client.Images(ctx)
			switch {
			case err != nil:
				return err
			case format.data():
				return p.print(format, list)
			case len(list.Items) == 0:
				fmt.Fprintln(p.Stderr, "no images")
				return nil
			}
			p.imageTable(list)
			return nil
		},
	}
}

// imageTable prints a line for each tag of each image.
func (p Program) imageTable(list api.ImageList) {
	t := newTable(p.Stdout, p.style())
	t.row(bold, "IMAGE", "TAG", "IMAGE ID", "SIZE", "PINNED", "CONTAINERS", "LAST USED", "GC")
	for _, i := range list.Items {
		action, c := "keep", plain
		if i.Delete {
			action, c = "delete", yellow
		}
		action += ": " + i.Reason
		for _, ref := range imageNames(i) {
			name, tag := splitTag(ref)
			t.row(c, name, tag, shortID(i.ID), size(int64(i.SizeBytes)), strconv.FormatBool(i.Pinned), strconv.Itoa(i.Containers), age(list.Now, i.LastUsed), action)
		}
	}
	t.flush()
}

// imageNames returns the tags of an image. If the image has no tag, it returns one digest, or
// <none> if the image has no digest either.
func imageNames(i api.Image) []string {
	switch {
	case len(i.Tags) > 0:
		return i.Tags
	case len(i.Digests) > 0:
		return i.Digests[:1]
	}
	return []string{"<none>"}
}

// splitTag splits a reference into the name and the tag of an image. A reference with a digest has no tag.
func splitTag(ref string) (name, tag string) {
	name, _, isDigest := strings.Cut(ref, "@")
	if at := strings.LastIndexByte(name, ':'); !isDigest && at > strings.LastIndexByte(name, '/') {
		return name[:at], name[at+1:]
	}
	return name, "<none>"
}

// shortID returns the first 12 digits of an image's ID, as docker prints them.
func shortID(id string) string {
	id = strings.TrimPrefix(id, "sha256:")
	return id[:min(len(id), 12)]
}

func (p Program) pull() command {
	var conn connection
	return command{
		name: "pull", args: "IMAGE", summary: "pull an image with the credentials of the node, and print its digest",
		flags: func(f *flag.FlagSet) { conn.register(p, f) },
		run: func(ctx context.Context, args []string) error {
			if len(args) != 1 {
				return usagef("pull requires exactly one image: %s pull IMAGE", p.Name)
			}
			client, err := conn.open()
			if err != nil {
				return err
			}
			defer client.Close()
			i, err := client.Pull(ctx, args[0])
			if err != nil {
				return err
			}
			digest := i.ID // an image that was built on this node has no digest
			if len(i.Digests) > 0 {
				digest = i.Digests[0]
			}
			_, err = fmt.Fprintln(p.Stdout, printable.Line(cmp.Or(digest, args[0])))
			return err
		},
	}
}
