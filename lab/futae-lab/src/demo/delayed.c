/* A plug-in of nbdkit: an image whose every request takes longer by delay_us microseconds.
 *
 * The delay filter of nbdkit counts in whole milliseconds. nbdkit compiles this by its cc plug-in.
 */
#define NBDKIT_API_VERSION 2

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <nbdkit-plugin.h>

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

static char *image;
static unsigned delay_us;

static int delayed_config(const char *key, const char *value)
{
	if (!strcmp(key, "image")) {
		image = nbdkit_realpath(value);
		return image ? 0 : -1;
	}
	if (!strcmp(key, "delay_us"))
		return nbdkit_parse_unsigned(key, value, &delay_us);
	nbdkit_error("unknown parameter %s", key);
	return -1;
}

static int delayed_config_complete(void)
{
	if (image)
		return 0;
	nbdkit_error("image=FILE is missing");
	return -1;
}

static void *delayed_open(int readonly)
{
	int *fd = malloc(sizeof(*fd));

	if (!fd) {
		nbdkit_error("malloc: %m");
		return NULL;
	}
	*fd = open(image, (readonly ? O_RDONLY : O_RDWR) | O_CLOEXEC);
	if (*fd < 0) {
		nbdkit_error("%s: %m", image);
		free(fd);
		return NULL;
	}
	return fd;
}

static void delayed_close(void *handle)
{
	close(*(int *)handle);
	free(handle);
}

static int64_t delayed_get_size(void *handle)
{
	struct stat stat;

	if (fstat(*(int *)handle, &stat)) {
		nbdkit_error("%s: %m", image);
		return -1;
	}
	return stat.st_size;
}

static int delayed_can_multi_conn(void *handle)
{
	(void)handle;
	return 1;
}

static void wait_once(void)
{
	struct timespec left = {
		.tv_sec = delay_us / 1000000,
		.tv_nsec = delay_us % 1000000 * 1000L,
	};

	/* Otherwise the kernel adds 50 microseconds. It is set by thread. */
	prctl(PR_SET_TIMERSLACK, 1);
	while (nanosleep(&left, &left) && errno == EINTR)
		;
}

static int delayed_pread(void *handle, void *data, uint32_t count, uint64_t offset, uint32_t flags)
{
	char *at = data;

	(void)flags;
	wait_once();
	while (count > 0) {
		ssize_t done = pread(*(int *)handle, at, count, offset);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0) {
			nbdkit_error("reading %s: %s", image, done ? strerror(errno) : "it has become shorter");
			return -1;
		}
		at += done;
		offset += done;
		count -= done;
	}
	return 0;
}

static int delayed_flush(void *handle, uint32_t flags)
{
	(void)flags;
	if (fdatasync(*(int *)handle)) {
		nbdkit_error("syncing %s: %m", image);
		return -1;
	}
	return 0;
}

static int delayed_pwrite(void *handle, const void *data, uint32_t count, uint64_t offset, uint32_t flags)
{
	const char *at = data;

	wait_once();
	while (count > 0) {
		ssize_t done = pwrite(*(int *)handle, at, count, offset);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0) {
			nbdkit_error("writing %s: %m", image);
			return -1;
		}
		at += done;
		offset += done;
		count -= done;
	}
	return flags & NBDKIT_FLAG_FUA ? delayed_flush(handle, 0) : 0;
}

static int delayed_can_fua(void *handle)
{
	(void)handle;
	return NBDKIT_FUA_NATIVE;
}

static struct nbdkit_plugin plugin = {
	.name = "delayed",
	.config = delayed_config,
	.config_complete = delayed_config_complete,
	.open = delayed_open,
	.close = delayed_close,
	.get_size = delayed_get_size,
	.can_multi_conn = delayed_can_multi_conn,
	.can_fua = delayed_can_fua,
	.pread = delayed_pread,
	.pwrite = delayed_pwrite,
	.flush = delayed_flush,
};

NBDKIT_REGISTER_PLUGIN(plugin)
