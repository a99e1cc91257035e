package fakecri

import (
	"errors"
	"fmt"
	"slices"
)

// validate returns all problems with the layers, the size and the pull of i.
func (i Image) validate() error {
	var errs []error
	seen := map[string]bool{}
	for k, l := range i.Layers {
		if l.Name == "" {
			errs = append(errs, fmt.Errorf("field Layers[%d]: field Name is required", k))
		} else if seen[l.Name] {
			errs = append(errs, fmt.Errorf("field Layers[%d]: duplicate layer %q", k, l.Name))
		}
		seen[l.Name] = true
	}
	if sum := i.layerBytes(); len(i.Layers) > 0 && i.SizeBytes != 0 && i.SizeBytes != sum {
		errs = append(errs, fmt.Errorf("field SizeBytes: %d is not the sum of the layers, %d", i.SizeBytes, sum))
	}
	if err := i.Pull.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("field Pull: %w", err))
	}
	return errors.Join(errs...)
}

// validateLayers returns an error for each layer that has different sizes in two images.
func validateLayers(images, registry []Image) error {
	var errs []error
	sizes := map[string]uint64{}
	for _, img := range slices.Concat(images, registry) {
		for _, l := range img.Layers {
			size, ok := sizes[l.Name]
			if ok && size != l.SizeBytes {
				errs = append(errs, fmt.Errorf("image %q: layer %q has %d bytes here and %d elsewhere", img.Name, l.Name, l.SizeBytes, size))
			}
			sizes[l.Name] = l.SizeBytes
		}
	}
	return errors.Join(errs...)
}

func (i Image) layerBytes() uint64 {
	var sum uint64
	for _, l := range i.Layers {
		sum = saturatingAdd(sum, l.SizeBytes)
	}
	return sum
}

// complete returns a copy of i with its layers and size set.
func (i Image) complete() Image {
	i.Tags = slices.Clone(i.Tags)
	if len(i.Layers) == 0 {
		i.Layers = []Layer{{Name: i.digest(), SizeBytes: i.SizeBytes}}
		return i
	}
	i.Layers = slices.Clone(i.Layers)
	i.SizeBytes = i.layerBytes()
	return i
}

// layers returns the sizes of all layers in the store, by name.
func (s *imageStore) layers() map[string]uint64 {
	all := map[string]uint64{}
	for _, img := range s.order {
		for _, l := range img.Layers {
			all[l.Name] = l.SizeBytes
		}
	}
	return all
}

// missing returns how many bytes of an image are not in the store.
func (s *imageStore) missing(img Image) uint64 {
	have := s.layers()
	var sum uint64
	for _, l := range img.Layers {
		if _, ok := have[l.Name]; !ok {
			sum = saturatingAdd(sum, l.SizeBytes)
		}
	}
	return sum
}
