package commands

import (
	"archive/tar"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/api/stream"
	"github.com/kubeparts/kubeparts/internal/printable"
)

func (p Program) cp() command {
	var conn connection
	var o streamFlags
	return command{
		name: "cp", args: "[NAMESPACE/]POD:PATH LOCAL | LOCAL [NAMESPACE/]POD:PATH", summary: "copy files from or to a container, which must have the program tar",
		flags: func(f *flag.FlagSet) {
			conn.register(p, f)
			o.scope.register(f)
			for _, name := range []string{"c", "container"} {
				f.StringVar(&o.container, name, "", "container of the pod (default: the first regular container)")
			}
		},
		run: func(ctx context.Context, args []string) error {
			if len(args) != 2 {
				return usagef("cp requires a source and a destination: %s cp POD:PATH LOCAL, or %s cp LOCAL POD:PATH", p.Name, p.Name)
			}
			from, fromPod := inPod(args[0])
			to, toPod := inPod(args[1])
			if (fromPod == "") == (toPod == "") {
				return usagef("exactly one of the source and the destination must be in a pod: POD:PATH")
			}
			client, err := conn.open()
			if err != nil {
				return err
			}
			defer client.Close()
			target, _, err := o.find(ctx, p, client, fromPod+toPod)
			if err != nil {
				return err
			}
			if fromPod != "" {
				return p.download(ctx, client, target, from, to)
			}
			return p.upload(ctx, client, target, from, to)
		},
	}
}

// inPod splits POD:PATH. The pod is empty if arg is a path on this machine.
func inPod(arg string) (file, pod string) {
	pod, file, ok := strings.Cut(arg, ":")
	if !ok || strings.HasPrefix(arg, ".") || strings.HasPrefix(arg, "/") {
		return arg, ""
	}
	return file, pod
}

// download copies a file or a folder of a container. If local is a folder, the copy is created in it.
func (p Program) download(ctx context.Context, client *api.Client, t stream.Target, remote, local string) error {
	remote = path.Clean(remote)
	if info, err := os.Stat(local); err == nil && info.IsDir() {
		local = filepath.Join(local, path.Base(remote))
	}
	if path.Base(remote) == "." || path.Base(remote) == "/" {
		return usagef("%s: must name a file or a folder", remote)
	}
	return p.piped(ctx, func(ctx context.Context, w io.Writer) error {
		return stream.Exec(ctx, client, t, []string{"tar", "cf", "-", "-C", path.Dir(remote), "--", path.Base(remote)}, stream.Streams{Stdout: w, Stderr: p.Stderr})
	}, func(r io.Reader) error { return p.unpack(r, path.Base(remote), local) })
}

// upload copies a file or a folder of this machine to a container.
func (p Program) upload(ctx context.Context, client *api.Client, t stream.Target, local, remote string) error {
	if _, err := os.Stat(local); err != nil {
		return err
	}
	if strings.HasSuffix(remote, "/") {
		remote = path.Join(remote, filepath.Base(local))
	}
	remote = path.Clean(remote)
	reader, writer := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := pack(writer, local, path.Base(remote))
		_ = writer.CloseWithError(err)
		packed <- err
	}()
	err := stream.Exec(ctx, client, t, []string{"tar", "xmf", "-", "-C", path.Dir(remote)}, stream.Streams{Stdin: reader, Stdout: p.Stdout, Stderr: p.Stderr})
	_ = reader.Close()
	if errPack := <-packed; errPack != nil && !errors.Is(errPack, io.ErrClosedPipe) {
		return errPack
	}
	return err
}

// piped connects the output of write with the input of read. If read fails, piped cancels the
// context of write. It returns the error of read, or the error of write if read has not failed or
// has only passed on the error of write.
func (p Program) piped(ctx context.Context, write func(context.Context, io.Writer) error, read func(io.Reader) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := read(r)
		if err != nil {
			cancel() // the remaining output is not needed
		}
		_ = r.CloseWithError(err)
		done <- err
	}()
	err := write(ctx, w)
	_ = w.CloseWithError(err)
	if errRead := <-done; errRead != nil && !errors.Is(errRead, err) {
		return errRead
	}
	return err
}

// unpack extracts an archive. The entry with the given base name becomes the file or folder at the
// given local path. All other entries must be below this entry. The container may be hostile, so
// unpack checks the names of all entries and creates no links. [os.Root] refuses existing links
// that lead out of the parent folder of the local path.
func (p Program) unpack(r io.Reader, base, local string) (err error) {
	root, err := os.OpenRoot(filepath.Dir(local))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF):
			// Read the rest of the stream after the end of the archive, so that tar can exit.
			_, err = io.Copy(io.Discard, r)
			return err
		case err != nil:
			return err
		}
		rest, ok := strings.CutPrefix(path.Clean(h.Name), base)
		if !ok || rest != "" && rest[0] != '/' {
			return fmt.Errorf("the archive has the unexpected entry %q", printable.Line(h.Name))
		}
		name := filepath.Base(local) + filepath.FromSlash(rest)
		switch h.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(name, 0o755)
		case tar.TypeReg:
			err = writeFile(root, name, archive, h.FileInfo().Mode().Perm())
		default:
			fmt.Fprintf(p.Stderr, "warning: skipping %s, which is neither a file nor a folder\n", printable.Line(h.Name))
		}
		if err != nil {
			return err
		}
	}
}

func writeFile(root *os.Root, name string, content io.Reader, mode fs.FileMode) (err error) {
	f, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = io.Copy(f, content)
	return err
}

// pack writes an archive with a file or a folder of this machine. In the archive, the file or
// folder has the given base name.
func pack(w io.Writer, local, base string) error {
	archive := tar.NewWriter(w)
	err := filepath.WalkDir(local, func(file string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() && !info.IsDir() {
			return err // links, sockets and devices are not copied
		}
		h, err := tar.FileInfoHeader(info, "")
		if err != nil {
			return err
		}
		below, err := filepath.Rel(local, file)
		if err != nil {
			return err
		}
		h.Name = path.Join(base, filepath.ToSlash(below))
		if err := archive.WriteHeader(h); err != nil || info.IsDir() {
			return err
		}
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		_, err = io.Copy(archive, f)
		return errors.Join(err, f.Close())
	})
	return errors.Join(err, archive.Close())
}
