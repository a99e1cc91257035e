package fakecri

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/imageref"
)

// Apply sets the programs of images, with keys as in Config.Programs. Other images keep
// their programs, and existing containers keep the program with which they were created. If
// any program is invalid, Apply changes nothing and returns an error with all problems.
// Apply copies the programs.
func (n *Node) Apply(programs map[string]Program) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := func(ref imageref.Ref) bool {
		_, ok := n.images.remote[ref.String()]
		return ok || n.cfg.PullAny
	}
	if err := validatePrograms(programs, known); err != nil {
		return fmt.Errorf("fakecri: invalid programs: %w", err)
	}
	n.apply(programs)
	return nil
}

// apply sets programs that were validated.
func (n *Node) apply(programs map[string]Program) {
	for name, p := range programs {
		if ref, command, err := parseProgramName(name); err == nil {
			n.programs[programKey(ref, command)] = p.clone()
		}
	}
}

// knows reports whether an image with this reference is configured or can be pulled.
func (c Config) knows(ref imageref.Ref) bool {
	return c.PullAny || slices.ContainsFunc(slices.Concat(c.Images, c.Registry), func(img Image) bool {
		return slices.ContainsFunc(img.names(), func(name string) bool {
			other, err := parseRef(name)
			return err == nil && other == ref
		})
	})
}

// validatePrograms returns all problems with programs. An unknown image is also a problem,
// because its name is probably misspelled.
func validatePrograms(programs map[string]Program, known func(imageref.Ref) bool) error {
	var errs []error
	seen := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		ref, command, err := parseProgramName(name)
		key := programKey(ref, command)
		other, taken := seen[key]
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("field Programs: image name %q: %w", name, err))
		case taken:
			errs = append(errs, fmt.Errorf("field Programs: %q and %q are the same image", other, name))
		case !known(ref):
			errs = append(errs, fmt.Errorf("field Programs: image %q is neither in Images nor in Registry", name))
		default:
			seen[key] = name
		}
		if err := programs[name].Validate(); err != nil {
			errs = append(errs, fmt.Errorf("field Programs[%q]: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// parseProgramName splits a key of Config.Programs into image and command.
func parseProgramName(name string) (ref imageref.Ref, command string, err error) {
	image, command, hasCommand := strings.Cut(name, " ")
	if hasCommand && command != strings.Join(strings.Fields(command), " ") || hasCommand && command == "" {
		return imageref.Ref{}, "", errors.New("the words of a command are separated by single spaces")
	}
	ref, err = parseRef(image)
	return ref, command, err
}

func programKey(ref imageref.Ref, command string) string {
	if command == "" {
		return ref.String()
	}
	return ref.String() + " " + command
}

// program returns the program of a container. It tries ProgramFor, then the image name that
// the user specified, then the image name in the config, then the tags of the image. For each
// name, a program for the container's command has precedence over the program of the image.
func (n *Node) program(config *runtimeapi.ContainerConfig, img *image) (*Program, error) {
	if n.cfg.ProgramFor != nil {
		if p := n.cfg.ProgramFor(config); p != nil {
			return p.clone(), p.Validate()
		}
	}
	command := strings.Join(slices.Concat(config.GetCommand(), config.GetArgs()), " ")
	spec := config.GetImage()
	for _, name := range append([]string{spec.GetUserSpecifiedImage(), spec.GetImage()}, img.tags...) {
		ref, err := parseRef(name)
		if err != nil {
			continue
		}
		if p, ok := n.programs[programKey(ref, command)]; ok {
			return p, nil
		}
		if p, ok := n.programs[ref.String()]; ok {
			return p, nil
		}
	}
	return n.idle, nil
}
