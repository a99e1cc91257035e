// Command mkimage writes one container image with one layer as an OCI image-layout tar,
// without a daemon, a registry or root. The same input always results in the same bytes.
//
//	mkimage -o pause.tar -name kubeparts.test/pause:1 -file ./pause:/pause -entrypoint /pause
package main

import (
	"archive/tar"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mkimage:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var (
		out, name string
		files     = layer{}
		img       = image{Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}}
	)
	flags := flag.NewFlagSet("mkimage", flag.ContinueOnError)
	flags.StringVar(&out, "o", "", "output tar")
	flags.StringVar(&name, "name", "", "image name, with its tag")
	flags.StringVar(&img.User, "user", "", "user, as UID or UID:GID")
	flags.Func("entrypoint", "one word of the entry point", appendTo(&img.Entrypoint))
	flags.Func("cmd", "one word of the default arguments", appendTo(&img.Cmd))
	flags.Func("env", "KEY=VALUE", appendTo(&img.Env))
	flags.Func("file", "SRC:DST[:MODE], a file that is copied in, with the mode 0755 by default", files.addFile)
	flags.Func("text", "DST=CONTENT, a small file", files.addText)
	flags.Func("dir", "DST:MODE, a directory", files.addDir)
	flags.Func("link", "DST=TARGET, a symbolic link", files.addLink)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if out == "" || name == "" {
		return errors.New("-o and -name are needed")
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	return errors.Join(img.write(f, name, files), f.Close())
}

func appendTo(list *[]string) func(string) error {
	return func(s string) error {
		*list = append(*list, s)
		return nil
	}
}

func (l layer) addFile(s string) error {
	src, dst, ok := strings.Cut(s, ":")
	if !ok {
		return errors.New("not SRC:DST[:MODE]")
	}
	mode := int64(0o755)
	if name, octal, ok := strings.Cut(dst, ":"); ok {
		n, err := strconv.ParseInt(octal, 8, 64)
		if err != nil {
			return err
		}
		dst, mode = name, n
	}
	data, err := os.ReadFile(src)
	if err != nil {
		return err
	}
	l.add(dst, entry{kind: tar.TypeReg, mode: mode, data: data})
	return nil
}

func (l layer) addText(s string) error {
	dst, text, ok := strings.Cut(s, "=")
	if !ok {
		return errors.New("not DST=CONTENT")
	}
	l.add(dst, entry{kind: tar.TypeReg, mode: 0o644, data: []byte(text + "\n")})
	return nil
}

func (l layer) addDir(s string) error {
	dst, mode, ok := strings.Cut(s, ":")
	if !ok {
		return errors.New("not DST:MODE")
	}
	n, err := strconv.ParseInt(mode, 8, 64)
	if err != nil {
		return err
	}
	l.add(dst, entry{kind: tar.TypeDir, mode: n})
	return nil
}

func (l layer) addLink(s string) error {
	dst, target, ok := strings.Cut(s, "=")
	if !ok {
		return errors.New("not DST=TARGET")
	}
	l.add(dst, entry{kind: tar.TypeSymlink, mode: 0o777, link: target})
	return nil
}
