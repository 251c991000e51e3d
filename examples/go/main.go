// Where in a photograph a face is likeliest, in Go through Hardtack's C interface.
//
//	findface MODEL.pkg PHOTO.png
//
// The model is that of examples/plain_c. The photograph is shrunk by 2, 3, ...; goroutines, each with a session of its own,
// share the sizes and the one Model, which any number of threads may use.
package main

/*
#cgo pkg-config: hardtack
#include <hardtack/hardtack.h>
#include <stdlib.h>

// Tensors are made here, on C's stack: memory of Go's that points to memory of Go's may not be given to C.
static ht_status* find(ht_session* session, const uint8_t* pixels, int64_t height, int64_t width, ht_tensor* output) {
  int64_t shape[] = {height, width, 3};
  ht_tensor input;
  memset(&input, 0, sizeof input);
  memset(output, 0, sizeof *output);
  input.data = (void*)pixels;
  input.device.device_type = 1;
  input.ndim = 3;
  input.dtype = (ht_dtype){1, 8, 1};
  input.shape = shape;
  return ht_session_run(session, NULL, &input, 1, output, 1);
}

static ht_status* new_session(ht_model* model, ht_session** session) {
  ht_session_options options = ht_session_options_default();
  options.num_threads = 1;
  return ht_session_create(model, &options, session);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"image"
	_ "image/png"
	"os"
	"runtime"
	"sync"
	"unsafe"
)

// A place is a square of the photograph and the probability that it shows a face.
type place struct {
	probability float32
	x, y, size  int
}

// photo holds rows of red, green, blue.
type photo struct {
	width, height int
	pixels        []uint8
}

// failure makes an error of a status, which it frees; nil of none.
func failure(status *C.ht_status) error {
	if status == nil {
		return nil
	}
	defer C.ht_status_free(status)
	return errors.New(C.GoString(C.ht_status_message(status)))
}

func readPhoto(path string) (photo, error) {
	file, err := os.Open(path)
	if err != nil {
		return photo{}, err
	}
	defer file.Close()
	decoded, _, err := image.Decode(file)
	if err != nil {
		return photo{}, fmt.Errorf("%s: %w", path, err)
	}
	box := decoded.Bounds()
	p := photo{box.Dx(), box.Dy(), make([]uint8, 0, box.Dx()*box.Dy()*3)}
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			r, g, b, _ := decoded.At(x, y).RGBA()
			p.pixels = append(p.pixels, uint8(r>>8), uint8(g>>8), uint8(b>>8))
		}
	}
	return p, nil
}

// shrink gives a photo each of whose pixels is the mean of factor x factor of p's.
func (p photo) shrink(factor int) photo {
	to := photo{p.width / factor, p.height / factor, nil}
	to.pixels = make([]uint8, to.width*to.height*3)
	area := factor * factor
	for i := range to.pixels {
		column, row, sum := i/3%to.width, i/3/to.width, 0
		for k := 0; k < area; k++ {
			sum += int(p.pixels[((row*factor+k/factor)*p.width+column*factor+k%factor)*3+i%3])
		}
		to.pixels[i] = uint8((sum + area/2) / area)
	}
	return to
}

// look takes factors until there are none, and keeps the best place of all the sizes it has looked at.
func look(model *C.ht_model, whole photo, factors <-chan int) (best place, err error) {
	var session *C.ht_session
	if err = failure(C.new_session(model, &session)); err != nil {
		return best, err
	}
	defer C.ht_session_free(session)
	for factor := range factors {
		small := whole.shrink(factor)
		var out C.ht_tensor
		first := (*C.uint8_t)(unsafe.Pointer(&small.pixels[0]))
		err = failure(C.find(session, first, C.int64_t(small.height), C.int64_t(small.width), &out))
		if err != nil {
			return best, err
		}
		shape := unsafe.Slice((*int64)(unsafe.Pointer(out.shape)), 2)
		// the session's memory: good until its next call
		data := unsafe.Slice((*float32)(unsafe.Add(out.data, out.byte_offset)), shape[0]*shape[1])
		for i, probability := range data {
			if probability > best.probability {
				columns := int(shape[1])
				best = place{probability, i % columns * 2 * factor, i / columns * 2 * factor, 12 * factor}
			}
		}
	}
	return best, nil
}

func search(model *C.ht_model, whole photo, least int) (place, error) {
	var factors []int
	for factor := 2; whole.width/factor >= least && whole.height/factor >= least; factor++ {
		factors = append(factors, factor)
	}
	todo := make(chan int, len(factors)) // holds them all: a goroutine that fails leaves nobody waiting
	for _, factor := range factors {
		todo <- factor
	}
	close(todo)
	workers := runtime.NumCPU()
	places, errs := make([]place, workers), make([]error, workers)
	var group sync.WaitGroup
	for i := 0; i < workers; i++ {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			places[i], errs[i] = look(model, whole, todo)
		}(i)
	}
	group.Wait()
	best := place{}
	for i := range places {
		if errs[i] != nil {
			return place{}, errs[i]
		}
		// of equals the smaller one: which goroutine found it is no matter
		p := places[i]
		if p.probability > best.probability || (p.probability == best.probability && p.size < best.size) {
			best = p
		}
	}
	return best, nil
}

func run(bundle, path string) error {
	whole, err := readPhoto(path)
	if err != nil {
		return err
	}
	name := C.CString(bundle)
	defer C.free(unsafe.Pointer(name))
	var model *C.ht_model
	if err := failure(C.ht_model_load(name, nil, &model)); err != nil {
		return err
	}
	defer C.ht_model_free(model)
	pixels := C.ht_model_input(model, 0, 0)
	if pixels == nil || pixels.ndim != 3 {
		return fmt.Errorf("%s does not take pixels [height, width, 3]", bundle)
	}
	best, err := search(model, whole, int(pixels.shape.lo))
	if err != nil {
		return err
	}
	fmt.Printf("x %d y %d size %d probability %.6f\n", best.x, best.y, best.size, best.probability)
	return nil
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: findface MODEL.pkg PHOTO.png")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "findface:", err)
		os.Exit(1)
	}
}
