//! Small valid traces of every format.

use crate::seeds;
use futae_policy::VolumeId;
use futae_trace::{Compression, Format};

/// Small traces of one format.
pub fn of_format(format: Format) -> Vec<Vec<u8>> {
    let lines = |text: &[&str]| text.iter().map(|text| text.as_bytes().to_vec()).collect();
    match format {
        Format::OracleGeneral
        | Format::Csv
        | Format::Parquet
        | Format::Ids
        | Format::Le32
        | Format::Le64
        | Format::Be32
        | Format::Be64 => {
            let mut of_one_volume = seeds::requests();
            of_one_volume
                .iter_mut()
                .for_each(|request| request.volume = VolumeId(0));
            vec![seeds::written(format, Compression::None, &of_one_volume)]
        }
        Format::Vscsi1 => vec![vscsi1()],
        Format::Vscsi2 => vec![vscsi2()],
        Format::Blktrace => [u32::to_le_bytes, u32::to_be_bytes].map(blktrace).to_vec(),
        Format::Msr => lines(&["128166372003061629,usr,0,Read,10995532800,16384,30123\n\
             128166372016382155,usr,1,Write,2517696,512,14720\n"]),
        Format::Arc => lines(&["230027 8 0 0\n1 64 0 1\n"]),
        Format::Tencent => lines(&["1,4247200,128,1,1058\n2,0,8,0,1063\n"]),
        Format::Systor => lines(&[
            "Timestamp,Response,IOType,LUN,Offset,Size\n1.5,0.1,R,4,4096,512\n2.0,,W,4,0,512\n",
        ]),
        Format::DiskSim => lines(&[
            "0.5 2 10 16 1\n1.25 2 26 16 0\n",
            "938513000 4 10 16 0\n938513001 4 11 16 1\n",
        ]),
        Format::Spc => lines(&["0,20941264,8192,W,0.551706,x\n1,8,512,r,1\n"]),
        Format::Alibaba => {
            lines(&["419,W,8192,4096,1577808000000046\n7,R,0,512,1577808000000047\n"])
        }
        Format::FlashNet => lines(&["1.000,134,1,4096,512,0.100,4096\n2,1,0,512,8,0.1,0\n"]),
        Format::Blkparse => lines(&[
            "  8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]\n\
               8,0    3        2     0.000001829   697  Q  WS 223490 + 8 [kjournald]\n\
               8,0    3        3     0.500000000   697  Q   R 16 + 8 [cat]\n\
               CPU3 (8,0):\n Reads Queued:           1,        4KiB\n",
        ]),
        Format::FioIolog => lines(&[
            "fio version 2 iolog\n/f add\n/f open\n/f read 0 4096\nx wait 150 0\n\
             /g write 8192 512\n/f sync 0 0\n/f close\n",
            "fio version 3 iolog\n18 /f add\n122 /f open\n126 /f read 0 4096\n3270 /f trim 0 9\n\
             3476 /f write 28672 4096\n4118 /f close\n",
        ]),
        Format::Keys => lines(&["a b\n01\n1\na b\n"]),
        Format::Twitter => lines(&["0,Q8q_8qjj0,26,110,0,get,0\n2,Q8q_8qjj0,26,110,0,set,60\n"]),
        Format::CacheLib => lines(&[
            "op_time,key,key_size,op,op_count,size,cache_hits,ttl,usecase,sub_usecase\n\
             5,97,8,GET,2,5,1,0,1,1\n7,97,8,SET,1,5,0,60,1,1\n",
            "key,op,size,op_count,key_size\n7,GET,0,2,30\n",
        ]),
        Format::Wikipedia => lines(&[
            "relative_unix\thashed_path_query\timage_type\tresponse_size\ttime_firstbyte\n\
             0\t-5\tpng\t10\t1.0E-4\n",
            "relative_unix\thashed_host_path_query\tresponse_size\ttime_firstbyte\n3\t1\t9\t0.1\n",
        ]),
        Format::Tragen => lines(&["0,17,4\n0,18,1\n1,17,4\n"]),
        Format::TencentPhoto => {
            lines(&["20160201164559 1111111111111111111111111111111111111111 0 8 12000 1 0 5\n"])
        }
        Format::Fiu => lines(&["391020023 4253 syslogd 904265560 8 W 6 0 531e779d26f1ce9c\n"]),
        Format::Octf => vec![octf()],
        Format::Srt => vec![srt(4), srt(7)],
        Format::Prefix => lines(&[
            "{\"timestamp\": 0, \"hash_ids\": [0, 14, \"x\"]}\n{\"timestamp\": 61.1, \"hash_ids\": [0]}\n",
        ]),
    }
}

/// A write, a read and a discard: each event after its length, with its number and time and then the request.
fn octf() -> Vec<u8> {
    let message = |fields: &[(u8, u8)]| -> Vec<u8> {
        let fields = fields.iter();
        fields
            .flat_map(|&(field, number)| [field << 3, number])
            .collect()
    };
    let event = |number: u8, kind: u8| {
        let header = message(&[(1, number), (2, 50 + number)]);
        let io = message(&[(1, 8), (2, 8), (4, 3), (5, kind)]);
        let mut event = vec![0, 1 << 3 | 2, header.len() as u8];
        event.extend(header);
        event.extend([2 << 3 | 2, io.len() as u8]);
        event.extend(io);
        event[0] = event.len() as u8 - 1;
        event
    };
    [(1, 2), (2, 1), (3, 3)]
        .into_iter()
        .flat_map(|(number, kind)| event(number, kind))
        .collect()
}

/// A header that describes a disk, a request, and one that is suspect.
fn srt(version: u32) -> Vec<u8> {
    let words = if version == 7 { 22 } else { 14 };
    let record = |kind: u32, words: u32| -> Vec<u8> {
        let mut record: Vec<u32> = vec![words * 4, version << 16 | kind, 1, 500];
        record.extend([0, 9, 4096, 16, 8 << 24 | 7, 4, 0, 1]);
        record.resize(words as usize, 0);
        record.into_iter().flat_map(u32::to_be_bytes).collect()
    };
    let header =
        b"$$TR_IOREC-1.3 (x)\0\ndisks = { 0 -> { charactermajor = 7, sectorsize = 256 } };\n\x0C";
    [&header[..], &record(1, words), &record(4, words + 1)].concat()
}

fn vscsi1() -> Vec<u8> {
    let record = |command: u16| {
        let mut record = vec![0; 4];
        record.extend(4096u32.to_le_bytes());
        record.extend([1, 0, 0, 0]);
        record.extend(command.to_le_bytes());
        record.extend(0x0100u16.to_le_bytes());
        record.extend(16u64.to_le_bytes());
        record.extend(9u64.to_le_bytes());
        record
    };
    [0x28, 0x2a, 0x35, 0x88]
        .into_iter()
        .flat_map(record)
        .collect()
}

fn vscsi2() -> Vec<u8> {
    let record = |command: u16| {
        let mut record = command.to_le_bytes().to_vec();
        record.extend(0x0200u16.to_le_bytes());
        record.extend([0; 4]);
        record.extend(4096u32.to_le_bytes());
        record.extend([1, 0, 0, 0]);
        for word in [16u64, 9, 100] {
            record.extend(word.to_le_bytes());
        }
        record
    };
    [0x28, 0x2a, 0x35, 0x88]
        .into_iter()
        .flat_map(record)
        .collect()
}

/// Queued reads and writes, each with a tail of two bytes, in either order of bytes.
fn blktrace(bytes: fn(u32) -> [u8; 4]) -> Vec<u8> {
    let is_big = bytes(1)[3] == 1;
    let record = |action: u32| {
        let long = |low: u32| if is_big { [0, low] } else { [low, 0] };
        let words = [
            &[0x6561_7407, 1][..],
            &long(5_000_000),
            &long(16),
            &[4096, action, 99, 8 << 20 | 1, 0],
        ];
        let mut record: Vec<u8> = words.concat().into_iter().flat_map(bytes).collect();
        record.extend([0, 0]);
        record.extend(if is_big { [0, 2] } else { [2, 0] });
        record.extend([7, 7]);
        record
    };
    [1 << 16 | 1, 1 << 17 | 1, 1 << 17 | 1 << 23 | 1]
        .into_iter()
        .flat_map(record)
        .collect()
}
